"""What a subscriber notices when a router is killed, and when routers are replaced (R5)."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bench.figures import Figures, percentile
from bench.first_in_line import first_in_line
from bench.mqtt_load import LoadClient
from bench.path import RATE, StackBench
from bench.router import BATCH_S
from bench.silence import longest_gap, longest_silence_ms
from jobs.stack.process import wait_until
from jobs.stack.state import ProcessState, running_state

TWO_PROCESSES = {"WAYSTATION_STACK__ROUTER_PROCESSES": "2", "WAYSTATION_STACK__RESTART_BACKOFF_S": "1e-10"}
BACK_S = 400.0
LEVEL_S = 2 * BATCH_S
DRAIN_S = 30.0


class Window(NamedTuple):
    """From when to when something happened, on the clock of `time.perf_counter`."""

    since_s: float
    until_s: float


@dataclass(frozen=True)
class Seen:
    """What a subscriber got at a steady rate, in order: when each message was sent, and how much later it came."""

    sent_s: list[float]
    latencies_ms: list[float]

    def latencies_in(self, window: Window) -> list[float]:
        """Of the messages sent within the window."""
        both = zip(self.sent_s, self.latencies_ms, strict=True)
        return [latency for sent, latency in both if window.since_s <= sent <= window.until_s]

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


class FailoverBench:
    """One stack with two router processes; one publisher and one subscriber at `RATE`, QoS 1, all the time."""

    def __init__(self, stack: StackBench, figures: Figures) -> None:
        self._stack = stack
        self._figures = figures
        self._random = random.Random(5)

    def run(self, kills: int, replacements: int, quiet_s: float, warm_s: float) -> None:
        """Records `kill_active_…`, `replace_…` and, to compare with, `failover_quiet_…`."""

        def quiet() -> list[Window]:
            time.sleep(warm_s)
            began = time.perf_counter()
            time.sleep(quiet_s)
            return [Window(began, time.perf_counter())]

        (window,), seen = self._under_load(quiet)
        self._figures.latencies("failover_quiet", seen.latencies_in(window))
        self._figures.add("failover_quiet_silence_ms", round(seen.silence_ms(window), 1))
        windows, seen = self._under_load(lambda: [self._kill(number / kills) for number in range(kills)])
        for number, window in enumerate(windows):
            sys.stdout.write(f"  killed {number}/{kills} into a batch: {seen.story(window)}\n")
        silences = sorted(seen.silence_ms(window) for window in windows)
        self._figures.add("kill_active_silence_p50_ms", round(percentile(silences, 0.5), 1))
        self._figures.add("kill_active_silence_ms", round(silences[-1], 1))
        windows, seen = self._under_load(lambda: [self._replace() for _ in range(replacements)])
        silences = sorted(seen.silence_ms(window) for window in windows)
        self._figures.add("replace_silence_p50_ms", round(percentile(silences, 0.5), 1))
        self._figures.add("replace_silence_ms", round(silences[-1], 1))
        late = [latency for window in windows for latency in seen.latencies_in(window)]
        self._figures.latencies("replace", late)

    def _kill(self, phase: float) -> Window:
        """`kill -9` of the active in the part of a batch that `phase` (0 … 1) says, until it has taken up its work."""
        time.sleep((phase * BATCH_S - time.time() + self._random.random()) % BATCH_S)
        began, pid = time.perf_counter(), self._active().pid
        os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: self._active().pid != pid and self._active().state == "ready", BACK_S):
            raise RuntimeError("the router that was killed is not back")
        back = time.perf_counter()
        time.sleep(LEVEL_S)
        return Window(began, back)

    def _replace(self) -> Window:
        began = time.perf_counter()
        self._stack.waystation("router", "replace", "--timeout", "300", own_session=True)
        done = time.perf_counter()
        time.sleep(LEVEL_S)
        return Window(began, done)

    def _active(self) -> ProcessState:
        processes = running_state(self._stack.data).processes
        return next(process for process in processes if process.name == "router-active")

    def _under_load(self, happening: Callable[[], list[Window]]) -> tuple[list[Window], Seen]:
        with first_in_line():
            return asyncio.run(_while_it_happens(self._stack.port(), happening))


async def _while_it_happens(port: int, happening: Callable[[], list[Window]]) -> tuple[list[Window], Seen]:
    """Publishes at RATE while `happening` runs in a thread; what it returns, and what the subscriber saw."""
    topic = f"bench/failover/{time.time_ns()}"
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
