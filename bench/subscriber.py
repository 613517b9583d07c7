"""What a subscriber sees, message by message, while something happens to the stack."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from bench.first_in_line import first_in_line
from bench.mqtt_load import LoadClient
from bench.path import RATE
from bench.silence import longest_gap, longest_silence_ms

DRAIN_S = 30.0
Happened = TypeVar("Happened")


class Window(NamedTuple):
    """From when to when something happened, on the clock of `time.perf_counter`."""

    since_s: float
    until_s: float


def window_of(happening: Callable[[], object]) -> Window:
    """That in which it happens."""
    began = time.perf_counter()
    happening()
    return Window(began, time.perf_counter())


@dataclass(frozen=True)
class Seen:
    """What a subscriber got at a steady rate, in order: when each message was sent, and how much later it came."""

    sent_s: list[float]
    latencies_ms: list[float]

    def latencies_in(self, *windows: Window) -> list[float]:
        """Of the messages sent within any of the windows."""
        both = list(zip(self.sent_s, self.latencies_ms, strict=True))
        return [latency for since, until in windows for sent, latency in both if since <= sent <= until]

    def silence_ms(self, window: Window) -> float:
        return longest_silence_ms(self._arrivals_s, 1 / RATE, *window)

    def story(self, window: Window) -> str:
        """The longest silence of the window, when it began, and how long the window is; and for how long at most
        nothing was sent, which is the machine's doing and not the routers'."""
        began_s = longest_gap(self._arrivals_s, *window)[0] - window.since_s
        unsent_ms = longest_silence_ms(self.sent_s, 1 / RATE, *window)
        return (
            f"silent for {self.silence_ms(window):.0f} ms, {began_s:.1f} s after it, of "
            f"{window.until_s - window.since_s:.0f} s; the publisher for {unsent_ms:.0f} ms"
        )

    @cached_property
    def _arrivals_s(self) -> list[float]:
        return sorted(s + latency / 1000 for s, latency in zip(self.sent_s, self.latencies_ms, strict=True))


def seen_while(port: int, happening: Callable[[], Happened]) -> tuple[Happened, Seen]:
    """One publisher and one subscriber at `RATE`, QoS 1, while `happening` runs in a thread: what that returns, and
    what the subscriber saw. Raises RuntimeError if it did not get each message once."""
    with first_in_line():
        return asyncio.run(_seen_while(port, happening))


async def _seen_while(port: int, happening: Callable[[], Happened]) -> tuple[Happened, Seen]:
    topic = f"bench/seen/{time.time_ns()}"
    subscriber = await LoadClient.connect(port, f"{topic}-sub")
    publisher = await LoadClient.connect(port, f"{topic}-pub")
    await subscriber.subscribe(topic, 1)
    it = asyncio.get_running_loop().run_in_executor(None, happening)
    sent: list[float] = []
    began = time.perf_counter()
    while not it.done():
        sent.append(time.perf_counter())
        publisher.publish(topic.encode(), 1)
        await asyncio.sleep(max(0.0, began + len(sent) / RATE - time.perf_counter()))
    deadline = time.monotonic() + DRAIN_S
    while len(subscriber.latencies_ms) < len(sent) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    subscriber.close()
    publisher.close()
    if len(subscriber.latencies_ms) != len(sent):
        raise RuntimeError(f"{len(subscriber.latencies_ms)} messages came of {len(sent)}")
    return await it, Seen(sent, subscriber.latencies_ms)
