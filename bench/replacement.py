"""What a subscriber notices when routers are replaced, beside quiet minutes of the same run (R5)."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figures
from bench.path import StackBench
from bench.router import LEVEL_S
from bench.subscriber import Seen, Window, seen_while, window_of
from jobs.stack.process import IDLE, ManagedProcess, stop_all

SETTLE_S = 5.0
REPLACE_S = "300"
LOOP = "while True: pass"
STOP_S = 10.0


class Round(NamedTuple):
    """A window each, one after the other: nothing happens; nothing happens but that loops take whatever processor time
    is left over; all routers are replaced."""

    quiet: Window
    spare: Window
    replaced: Window


class ReplacementBench:
    """One publisher and one subscriber all the time. What is recorded begins with `name`."""

    def __init__(self, stack: StackBench, figures: Figures, name: str) -> None:
        self._stack = stack
        self._figures = figures
        self._name = name

    def run(self, rounds: int, quiet_s: float, warm_s: float) -> None:
        """Records of all rounds together `<name>_…`, `<name>_quiet_…` and `<name>_spare_…`: latencies, and the longest
        silences; and `<name>_p99_vs_quiet`, `<name>_p99_vs_spare`."""

        def happening() -> list[Round]:
            time.sleep(warm_s)
            return [self._round(quiet_s) for _ in range(rounds)]

        found, seen = seen_while(self._stack.port(), happening)
        for number, windows in enumerate(found):
            for what, window in windows._asdict().items():
                sys.stdout.write(f"  {self._name}, round {number}, {what}: {seen.story(window)}\n")
        quiet, spare, replaced = zip(*found, strict=True)
        self._record(seen, f"{self._name}_quiet", quiet)
        self._record(seen, f"{self._name}_spare", spare)
        self._record(seen, self._name, replaced)
        p99_ms = self._figures.values[f"{self._name}_p99_ms"]
        for what in ("quiet", "spare"):
            other_ms = self._figures.values[f"{self._name}_{what}_p99_ms"]
            self._figures.add(f"{self._name}_p99_vs_{what}", round(p99_ms / other_ms, 2))

    def _round(self, quiet_s: float) -> Round:
        quiet = window_of(lambda: time.sleep(quiet_s))
        with spare_time_taken():
            spare = window_of(lambda: time.sleep(quiet_s))
        time.sleep(SETTLE_S)
        replaced = window_of(lambda: self._stack.waystation("router", "replace", "--timeout", REPLACE_S))
        time.sleep(LEVEL_S)
        return Round(quiet, spare, replaced)

    def _record(self, seen: Seen, name: str, windows: Sequence[Window]) -> None:
        self._figures.latencies(name, seen.latencies_in(*windows))
        self._figures.silences(name, [seen.silence_ms(window) for window in windows])


@contextmanager
def spare_time_taken() -> Iterator[None]:
    """Meanwhile a loop for each processor takes it while nobody else in this session, which is the stack's too, wants
    it (`SCHED_IDLE`, as a router that is to replace another), and does nothing with it: what a subscriber notices of
    that is the machine's part."""
    with ExitStack() as running:
        for _ in range(os.cpu_count() or 1):
            loop = ManagedProcess([sys.executable, "-c", LOOP], os.environ, Path(os.devnull))
            running.callback(stop_all, [loop], STOP_S)
            loop.give_way(IDLE)
        yield
