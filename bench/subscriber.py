"""What a subscriber sees, message by message: latencies, and how long nothing comes where something should."""

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

from bench.mqtt_clients import PAYLOAD, VERSION
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.client_limits import ClientLimits
from mqtt.client_outbound import MESSAGES_MAX
from mqtt.client_session import ClientSession
from mqtt.packets import Connect, Publish

Happened = TypeVar("Happened")

RATE = 200.0
DRAIN_S = 30.0
LOWEST = 1
"""Of real-time priorities: nobody else here has any."""
NOT_FIRST = "the client that measures may not go first, so its own waits count too: run this on Linux, as root\n"


class LoadClient:
    """A client of `edge`. `latencies_ms` from the time at the head of each payload. What is published is sent at once,
    however much is unacknowledged."""

    def __init__(self, port: int, client_id: str, tls: ssl.SSLContext | None) -> None:
        self.latencies_ms: list[float] = []
        self.mqtt = MqttClient(
            Address("127.0.0.1", port, tls),
            Connect(client_id, version=VERSION),
            session=ClientSession(queue_max=MESSAGES_MAX),
            limits=ClientLimits(in_flight_max=MESSAGES_MAX),
            on_message=self._received,
        )

    @classmethod
    async def connect(cls, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> "LoadClient":
        client = cls(port, client_id, tls)
        await client.mqtt.connect()
        return client

    def publish(self, topic: str, qos: int) -> None:
        payload = b"%020d" % time.perf_counter_ns() + b"x" * (len(PAYLOAD) - 20)
        self.mqtt.publish(topic, payload, qos)

    def _received(self, message: Publish) -> None:
        self.latencies_ms.append((time.perf_counter_ns() - int(message.payload[:20])) / 1e6)


async def publish_while(
    goes_on: Callable[[int], bool], port: int, qos: int, topic: str, tls: ssl.SSLContext | None = None
) -> tuple[list[float], list[float]]:
    """One publisher through the whole platform to one subscriber, at `RATE` messages a second while it `goes_on`, which
    is told how many were sent; both with `tls`, or neither.

    Of each message, in order, when it was sent (seconds of `time.perf_counter`), and how much later it came (ms).
    Raises RuntimeError if the subscriber does not get each once.
    """
    subscriber = await LoadClient.connect(port, f"bench-sub-{qos}-{time.time_ns()}", tls)
    publisher = await LoadClient.connect(port, f"bench-pub-{qos}-{time.time_ns()}", tls)
    await subscriber.mqtt.subscribe(topic, qos=qos)
    sent: list[float] = []
    began = time.perf_counter()
    while goes_on(len(sent)):
        sent.append(time.perf_counter())
        publisher.publish(topic, qos)
        await asyncio.sleep(max(0.0, began + len(sent) / RATE - time.perf_counter()))
    deadline = time.monotonic() + DRAIN_S
    while len(subscriber.latencies_ms) < len(sent) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    for client in (subscriber, publisher):
        await client.mqtt.disconnect()
    if len(subscriber.latencies_ms) != len(sent):
        raise RuntimeError(f"QoS {qos}: {len(subscriber.latencies_ms)} messages came of {len(sent)}")
    return sent, subscriber.latencies_ms


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
    """One publisher and one subscriber, QoS 1, while `happening` runs in a thread: what that returns, and what the
    subscriber saw. Raises RuntimeError if it did not get each message once."""
    with first_in_line():
        return asyncio.run(_seen_while(port, happening))


async def _seen_while(port: int, happening: Callable[[], Happened]) -> tuple[Happened, Seen]:
    it: list[asyncio.Future[Happened]] = []

    def goes_on(sent: int) -> bool:
        if not sent:  # the subscriber is there
            it.append(asyncio.get_running_loop().run_in_executor(None, happening))
        return not it[0].done()

    sent_s, latencies_ms = await publish_while(goes_on, port, 1, f"bench/seen/{time.time_ns()}")
    return await it[0], Seen(sent_s, latencies_ms)


@contextmanager
def first_in_line() -> Iterator[None]:
    """Meanwhile this thread gets a processor before all others, so that its own waits for one do not count as the
    platform's: beside a stack that takes all of them it would stand still for 100 ms now and then. What it starts is
    not preferred. Says so where that is not to be had (it takes Linux, and root or CAP_SYS_NICE)."""
    if sys.platform != "linux":
        sys.stderr.write(NOT_FIRST)
        yield
        return
    before, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(LOWEST))
    except PermissionError:
        sys.stderr.write(NOT_FIRST)
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameter)


def longest_gap(arrivals_s: Sequence[float], since_s: float, until_s: float) -> tuple[float, float]:
    """The two arrivals (of ascending ones) with the longest time between them, of which any part lies between the two
    moments; raises ValueError if there were none."""
    gaps = ((earlier, later) for earlier, later in pairwise(arrivals_s) if later > since_s and earlier < until_s)
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def longest_silence_ms(arrivals_s: Sequence[float], interval_s: float, since_s: float, until_s: float) -> float:
    """The longest gap, less the interval at which messages are sent."""
    earlier, later = longest_gap(arrivals_s, since_s, until_s)
    return max(0.0, later - earlier - interval_s) * 1000


def pauses_ms(arrivals_s: Sequence[float], interval_s: float, period_s: float) -> list[float]:
    """A single router's pauses: the longest silence of each period."""
    periods = int((arrivals_s[-1] - arrivals_s[0]) / period_s)
    begins = [arrivals_s[0] + number * period_s for number in range(periods)]
    return [longest_silence_ms(arrivals_s, interval_s, begin, begin + period_s) for begin in begins]
