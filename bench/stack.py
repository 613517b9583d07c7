"""The whole stack: start to first message, idle cost, client-to-client latency, and what a subscriber notices when a
router is killed, or when routers are replaced (R5)."""

import asyncio
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.figures import Figures
from bench.processes import cpu_s, family, fresh_directory
from bench.router import BATCH_S, LEVEL_S
from bench.subscriber import RATE, LoadClient, Seen, Window, first_in_line, publish_while, seen_while, window_of
from harness.keys import Authority
from jobs.stack.process import IDLE, ManagedProcess, stop_all, wait_until
from jobs.stack.state import ProcessState, running_state, state_if_running

START_S = 300.0
TWO_PROCESSES = {"WAYSTATION_STACK__ROUTER_PROCESSES": "2", "WAYSTATION_STACK__RESTART_BACKOFF_S": "1e-10"}
BACK_S = 400.0
SETTLE_S = 5.0
REPLACE_S = "300"
LOOP = "while True: pass"
STOP_S = 10.0


class StackBench:
    """A stack in `data`, started by `waystation up` as a user does, with a listener for TLS beside the plain one.

    `up_s`: how long that took until the first message was delivered, seconds.
    """

    def __init__(self, data: Path, figures: Figures, overrides: Mapping[str, str]) -> None:
        self.data = data
        self._figures = figures
        authority = Authority(data)
        ours = authority.sign("localhost")
        self._trust = ssl.create_default_context(cafile=str(authority.file))
        tls = {"CERTIFICATE": str(ours.certificate), "KEY": str(ours.key), "MQTTS_PORT": "0"}
        self._environment = os.environ | {f"WAYSTATION_GATEWAY__TLS__{name}": value for name, value in tls.items()}
        self._environment |= overrides
        self._command = [sys.executable, "-m", "jobs.cli.main", "--data", str(data)]
        self._up: subprocess.Popen[bytes] | None = None
        self.up_s = 0.0

    def up(self) -> None:
        """In our session: Linux shares the processors out among sessions first, and only then looks at how far a
        process gives way. Raises RuntimeError if it does not come up."""
        began = time.monotonic()
        command = [*self._command, "up", "--free-ports"]
        self._up = up = subprocess.Popen(command, env=self._environment, process_group=0)
        wait_until(lambda: up.poll() is not None or self._is_ready(), START_S)
        if not self._is_ready():
            raise RuntimeError("the stack does not come up")
        asyncio.run(self._first_message())
        self.up_s = time.monotonic() - began

    def down(self) -> None:
        if self._up is not None:
            self._up.terminate()
            self._up.wait()

    def idle(self, settle_s: float, seconds: float) -> None:
        """Records `idle_cores` and `idle_rss_mb`: the stack's own processes with nothing to do."""
        time.sleep(settle_s)
        roots = [psutil.Process(process.pid) for process in running_state(self.data).processes]
        processes = [process for root in roots for process in family(root)]
        before = sum(map(cpu_s, processes))
        time.sleep(seconds)
        self._figures.add("idle_cores", round((sum(map(cpu_s, processes)) - before) / seconds, 3))
        self._figures.add("idle_rss_mb", round(sum(p.memory_info().rss for p in processes) / 2**20))

    def path(self, name: str, qos: int, seconds: float, warm_s: float, with_tls: bool = False) -> None:
        """Records `path_<name>_…`: one publisher, one subscriber, 256 bytes, 200 messages a second, once the route of
        the topic is in effect (`warm_s` is longer than `route_lead_s`)."""
        port, trust = (self.port("mqtts"), self._trust) if with_tls else (self.port(), None)
        warm, total = int(RATE * warm_s), int(RATE * (warm_s + seconds))
        with first_in_line():
            load = publish_while(lambda sent: sent < total, port, qos, f"bench/path/{name}", trust)
            _, latencies_ms = asyncio.run(load)
        self._figures.latencies(f"path_{name}", latencies_ms[warm:])

    def warm(self, seconds: float) -> None:
        """The same load without a figure: in its first minutes the JVMs compile, which takes all of two cores."""
        total = int(RATE * seconds)
        asyncio.run(publish_while(lambda sent: sent < total, self.port(), 1, "bench/path/warm"))

    async def _first_message(self) -> None:
        port = self.port()
        subscriber = await LoadClient.connect(port, "bench-first-sub")
        publisher = await LoadClient.connect(port, "bench-first-pub")
        publisher.publish("@bench-first-sub", 1)
        while not subscriber.latencies_ms:
            await asyncio.sleep(0.01)
        await subscriber.mqtt.disconnect()
        await publisher.mqtt.disconnect()

    def port(self, listener: str = "mqtt") -> int:
        return int(running_state(self.data).listeners[listener].rpartition(":")[2])

    def waystation(self, *arguments: str) -> None:
        """Runs the command in a session of its own, as from another terminal."""
        subprocess.run([*self._command, *arguments], check=True, env=self._environment, start_new_session=True)

    def _is_ready(self) -> bool:
        state = state_if_running(self.data)
        return state is not None and state.ready


@contextmanager
def stack_bench(figures: Figures, **overrides: str) -> Iterator[StackBench]:
    """A stack that is up, gone afterwards."""
    with fresh_directory() as data:
        stack = StackBench(data, figures, overrides)
        try:
            stack.up()
            yield stack
        finally:
            stack.down()


@dataclass
class FailoverBench:
    """A stack with two router processes; one publisher and one subscriber all the time."""

    stack: StackBench
    figures: Figures
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    def run(self, kills: int, quiet_s: float, warm_s: float) -> None:
        """Records `kill_active_…` and, to compare with, `failover_quiet_…`."""

        def quiet() -> Window:
            time.sleep(warm_s)
            return window_of(lambda: time.sleep(quiet_s))

        window, seen = seen_while(self.stack.port(), quiet)
        self.figures.latencies("failover_quiet", seen.latencies_in(window))
        self.figures.add("failover_quiet_silence_ms", round(seen.silence_ms(window), 1))
        windows, seen = seen_while(self.stack.port(), lambda: [self._kill(number / kills) for number in range(kills)])
        for number, window in enumerate(windows):
            sys.stdout.write(f"  killed {number}/{kills} into a batch: {seen.story(window)}\n")
        self.figures.silences("kill_active", [seen.silence_ms(window) for window in windows])

    def _kill(self, phase: float) -> Window:
        """`kill -9` of the active in the part of a batch that `phase` (0 … 1) says, until it has taken up its work."""
        time.sleep((phase * BATCH_S - time.time() + self.dice.random()) % BATCH_S)
        began, pid = time.perf_counter(), self._active().pid
        os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: self._active().pid != pid and self._active().state == "ready", BACK_S):
            raise RuntimeError("the router that was killed is not back")
        back = time.perf_counter()
        time.sleep(LEVEL_S)
        return Window(began, back)

    def _active(self) -> ProcessState:
        processes = running_state(self.stack.data).processes
        return next(process for process in processes if process.name == "router-active")


class Round(NamedTuple):
    """A window each, one after the other: nothing happens; nothing happens but that loops take whatever processor time
    is left over; all routers are replaced."""

    quiet: Window
    spare: Window
    replaced: Window


@dataclass
class ReplacementBench:
    """One publisher and one subscriber all the time. What is recorded begins with `name`."""

    stack: StackBench
    figures: Figures
    name: str

    def run(self, rounds: int, quiet_s: float, warm_s: float) -> None:
        """Records of all rounds together `<name>_…`, `<name>_quiet_…` and `<name>_spare_…`: latencies, and the longest
        silences; and `<name>_p99_vs_quiet`, `<name>_p99_vs_spare`."""

        def happening() -> list[Round]:
            time.sleep(warm_s)
            return [self._round(quiet_s) for _ in range(rounds)]

        found, seen = seen_while(self.stack.port(), happening)
        for number, windows in enumerate(found):
            for what, window in windows._asdict().items():
                sys.stdout.write(f"  {self.name}, round {number}, {what}: {seen.story(window)}\n")
        quiet, spare, replaced = zip(*found, strict=True)
        self._record(seen, f"{self.name}_quiet", quiet)
        self._record(seen, f"{self.name}_spare", spare)
        self._record(seen, self.name, replaced)
        p99_ms = self.figures.values[f"{self.name}_p99_ms"]
        for what in ("quiet", "spare"):
            other_ms = self.figures.values[f"{self.name}_{what}_p99_ms"]
            self.figures.add(f"{self.name}_p99_vs_{what}", round(p99_ms / other_ms, 2))

    def _round(self, quiet_s: float) -> Round:
        quiet = window_of(lambda: time.sleep(quiet_s))
        with spare_time_taken():
            spare = window_of(lambda: time.sleep(quiet_s))
        time.sleep(SETTLE_S)
        replaced = window_of(lambda: self.stack.waystation("router", "replace", "--timeout", REPLACE_S))
        time.sleep(LEVEL_S)
        return Round(quiet, spare, replaced)

    def _record(self, seen: Seen, name: str, windows: Sequence[Window]) -> None:
        self.figures.latencies(name, seen.latencies_in(*windows))
        self.figures.silences(name, [seen.silence_ms(window) for window in windows])


@contextmanager
def spare_time_taken() -> Iterator[None]:
    """Meanwhile a loop for each processor takes it while nobody else in this session, which is the stack's too, wants
    it (`SCHED_IDLE`, as a router that is to replace another), and does nothing with it: what a subscriber notices of
    that is the machine's part."""
    with ExitStack() as running:
        for _ in range(os.cpu_count() or 1):
            loop = ManagedProcess([sys.executable, "-c", LOOP], os.environ, Path(os.devnull))
            running.callback(stop_all, [loop], STOP_S)
            loop.set_niceness(IDLE)
        yield
