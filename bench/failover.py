"""What a subscriber notices when a router is killed."""

import os
import random
import signal
import sys
import time

from bench.figures import Figures
from bench.path import StackBench
from bench.router import BATCH_S, LEVEL_S
from bench.subscriber import Window, seen_while, window_of
from jobs.stack.process import wait_until
from jobs.stack.state import ProcessState, running_state

TWO_PROCESSES = {"WAYSTATION_STACK__ROUTER_PROCESSES": "2", "WAYSTATION_STACK__RESTART_BACKOFF_S": "1e-10"}
BACK_S = 400.0


class FailoverBench:
    """A stack with two router processes; one publisher and one subscriber all the time."""

    def __init__(self, stack: StackBench, figures: Figures) -> None:
        self._stack = stack
        self._figures = figures
        self._random = random.Random(5)

    def run(self, kills: int, quiet_s: float, warm_s: float) -> None:
        """Records `kill_active_…` and, to compare with, `failover_quiet_…`."""

        def quiet() -> Window:
            time.sleep(warm_s)
            return window_of(lambda: time.sleep(quiet_s))

        window, seen = seen_while(self._stack.port(), quiet)
        self._figures.latencies("failover_quiet", seen.latencies_in(window))
        self._figures.add("failover_quiet_silence_ms", round(seen.silence_ms(window), 1))
        windows, seen = seen_while(self._stack.port(), lambda: [self._kill(number / kills) for number in range(kills)])
        for number, window in enumerate(windows):
            sys.stdout.write(f"  killed {number}/{kills} into a batch: {seen.story(window)}\n")
        self._figures.silences("kill_active", [seen.silence_ms(window) for window in windows])

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

    def _active(self) -> ProcessState:
        processes = running_state(self._stack.data).processes
        return next(process for process in processes if process.name == "router-active")
