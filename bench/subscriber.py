"""What a subscriber sees, message by message, while something happens to the stack."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from bench.first_in_line import first_in_line
from bench.mqtt_load import publish_while
from bench.path import RATE
from bench.silence import longest_gap, longest_silence_ms

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
    it: list[asyncio.Future[Happened]] = []

    def goes_on(sent: int) -> bool:
        if not sent:  # the subscriber is there
            it.append(asyncio.get_running_loop().run_in_executor(None, happening))
        return not it[0].done()

    sent_s, latencies_ms = await publish_while(goes_on, port, 1, RATE, f"bench/seen/{time.time_ns()}")
    return await it[0], Seen(sent_s, latencies_ms)
