"""Starts parts in order of dependency and keeps them running.

Guarantees: a part starts once all parts it depends on have been ready; one that dies, or is not ready in time, is
restarted after a delay that doubles, and may take twice as long the next time; nothing of a dead part's process group
is left when it is restarted; `stack.json` names every process from the moment it runs, or, if the disk is full then,
from the moment there is space again. A full disk ends nothing. A part that never became ready ends the start, with its
reason. A part can be replaced while it runs: the candidate becomes the part once it has caught up, and not before. Or
it can be restarted as another version; if that dies before it is ready, the earlier version runs again.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jobs.errors import StackError
from jobs.stack.events import Died as Died
from jobs.stack.events import Event as Event
from jobs.stack.events import NotReplaced as NotReplaced
from jobs.stack.events import Ready as Ready
from jobs.stack.events import Replaced as Replaced
from jobs.stack.events import Stopped as Stopped
from jobs.stack.log_rotation import Limits as LogLimits
from jobs.stack.log_rotation import rotate, tail
from jobs.stack.part import Part, levels, pause_after
from jobs.stack.process import Identity, ManagedProcess, can_take_priority_back, how_it_ended, stop_all
from jobs.stack.restart import Restart
from jobs.stack.rolling_replacement import RollingReplacement, Stage
from jobs.stack.state import FILE, ProcessState, StackState, forget_state, write_state
from jobs.stack.write_faults import WriteFaults
from schemas.readiness import ready_file

SETTLED_S = 60.0
"""A part that has been ready for this long starts again with the first restart delay."""
LOOK_S = 1.0
"""How often priorities are reconsidered and log sizes checked, and what could not be written is tried again."""
ANSWERS = "answers to commands"
TRIES = 3
"""How often a part may die before it was first ready."""
DOUBLINGS = 3
"""How often the time limit doubles for a restarted part that was not ready in time: a part that is slow because the
machine is overloaded would otherwise never become ready, and its restarts would add to the load."""


class Phase(Enum):
    """Phases of a part: WAITING → STARTING ⇄ RESTARTING, STARTING → READY → RESTARTING; from each of the last three →
    STOPPING → STARTING if a restart is asked for."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"


@dataclass
class _Running:
    """A part and its phase. `since`: when the phase began, on the supervisor's monotonic clock."""

    part: Part
    level: int
    phase: Phase = Phase.WAITING
    since: float = 0.0
    process: ManagedProcess | None = None
    started_at: float = 0.0
    starts: int = 0
    deaths: int = 0
    """Since it was last ready for `SETTLED_S`."""
    overdue: int = 0
    """How often it was not ready in time since it was last ready."""
    ever_ready: bool = False
    pause_s: float = 0.0
    listeners: dict[str, str] = field(default_factory=dict)
    restart: Restart | None = None


class Limits(NamedTuple):
    start_timeout_s: float
    stop_timeout_s: float
    restart_backoff_s: float
    settle_s: float
    logs: LogLimits = LogLimits(bytes=64 << 20, files=3)


class Supervisor:
    """Runs the parts of one data directory. Not thread-safe: one loop calls :meth:`tick`, then :meth:`stop`."""

    def __init__(
        self,
        data: Path,
        parts: Iterable[Part],
        limits: Limits,
        environ: Mapping[str, str],
        report: Callable[[Event], None],
        me: Identity,
        bootstrap: str = "",
        configuration: Iterable[str] = (),
        attend: Callable[["Supervisor"], None] = lambda _: None,
        gateways: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        parts = list(parts)
        level = levels(parts)
        self._data = data
        self._running = {part.name: _Running(part, level[part.name]) for part in parts}
        self._limits = limits
        self._environ = environ
        self._report = report
        self._faults = WriteFaults(report)
        self._me = me
        self._bootstrap = bootstrap
        self._configuration = list(configuration)
        self._gateways = dict(gateways)
        self._attend = attend
        self._announced = False
        self._looked_at = 0.0
        self._replacement: RollingReplacement | None = None

    @property
    def ready(self) -> bool:
        """Whether all parts have been ready."""
        return all(running.ever_ready for running in self._running.values())

    def tick(self) -> None:
        """Check every part once and do what is due. Raises StackError if the stack cannot start."""
        for running in self._running.values():
            self._advance(running, time.monotonic())
        if self._replacement:
            self._continue(self._replacement, time.monotonic())
        if time.monotonic() - self._looked_at > LOOK_S:
            self._look()
        with self._faults.writing(ANSWERS):
            self._attend(self)

    def replace(
        self, part: Part, arguments_alongside: Sequence[str], is_caught_up: Callable[[], bool], timeout_s: float
    ) -> RollingReplacement:
        """Start replacing the part of this name by `part`, which runs with the additional `arguments_alongside` until
        `is_caught_up`, and at lower priority so long. :meth:`tick` continues it.

        Raises StackError if there is no such part, another is being replaced, or `part` cannot be run.
        """
        self._find(part.name)
        if self.is_replacing:
            raise StackError("another part is being replaced: wait until it is done")
        argv, environ = (*part.argv, *arguments_alongside), {**self._environ, **part.env}
        try:
            candidate = ManagedProcess(argv, environ, self._log(part.name))
        except OSError as error:
            raise StackError(f"cannot run {part.argv[0]}: {error.strerror}") from error
        self._replacement = RollingReplacement(
            part,
            candidate,
            is_caught_up,
            time.monotonic(),
            time.time(),
            timeout_s,
            self._limits.settle_s,
            self._limits.stop_timeout_s,
        )
        self._record()
        return self._replacement

    def restart(self, part: Part) -> Restart:
        """Stop the process of the part of this name, and run `part` from then on. :meth:`tick` continues it. Raises
        StackError if there is no such part, or it is being restarted."""
        running = self._find(part.name)
        if running.restart is not None:
            raise StackError(f"{part.name} is being restarted: wait until it is done")
        running.restart, running.part = Restart(running.part), part
        if running.process:
            running.process.ask_to_stop()
        self._enter(running, Phase.STOPPING, time.monotonic())
        return running.restart

    def _find(self, name: str) -> _Running:
        if name not in self._running:
            raise StackError(f"this stack has no part {name}; its parts are {', '.join(self._running)}")
        return self._running[name]

    @property
    def is_replacing(self) -> bool:
        return self._replacement is not None and self._replacement.stage is not Stage.OVER

    def announce(self) -> None:
        """Record in `stack.json` that all parts have been ready."""
        self._announced = True
        self._share_out()
        self._record()

    def state(self) -> StackState:
        """What runs, in the form of `stack.json`."""
        listeners: dict[str, str] = {}
        for running in self._running.values():
            listeners |= running.listeners
        return StackState(
            supervisor_pid=self._me.pid,
            supervisor_create_time=self._me.create_time,
            supervisor_start_id=self._me.start_id,
            ready=self._announced,
            bootstrap=self._bootstrap,
            listeners=listeners,
            configuration=self._configuration,
            gateways=self._gateways,
            processes=[
                *(_state(r, r.process, r.phase.value, r.started_at) for r in self._running.values() if r.process),
                *(_state(r, other, stage.value, at) for r, other, stage, at in self._others()),
            ],
        )

    def _others(self) -> Iterator[tuple[_Running, ManagedProcess, Stage, float]]:
        """The second process of each part that is being replaced, and when it was started."""
        if (going := self._replacement) and (other := going.other):
            yield self._running[going.part.name], other, going.stage, going.other_started_at

    def stop(self) -> None:
        """Stop all parts, in reverse order of starting, and remove the record of the stack; also if a report fails."""
        for level in sorted({running.level for running in self._running.values()}, reverse=True):
            group = [(n, r.process) for n, r in self._running.items() if r.level == level and r.process]
            group += [(r.part.name, other) for r, other, _, _ in self._others() if r.level == level]
            group = [(name, process) for name, process in group if not process.ended()]
            clean = stop_all([process for _, process in group], self._limits.stop_timeout_s)
            for name in dict(group):
                with contextlib.suppress(OSError):  # the terminal is closed
                    self._report(Stopped(name, clean))
        forget_state(self._data)

    def _advance(self, running: _Running, now: float) -> None:
        match running.phase:
            case Phase.WAITING:
                if all(self._running[name].ever_ready for name in running.part.after):
                    self._start(running, now)
            case Phase.STARTING:
                self._await_ready(running, now)
            case Phase.READY:
                if running.process and running.process.ended() and not self._is_taken_over(running):
                    if now - running.since > SETTLED_S:
                        running.deaths = 0
                    self._died(running, now, how_it_ended(running.process.exit_code))
            case Phase.RESTARTING:
                if now - running.since >= running.pause_s:
                    self._start_again(running, now)
            case Phase.STOPPING:
                self._await_end(running, now)

    def _is_taken_over(self, running: _Running) -> bool:
        """Whether its process has ended because the candidate has its place; the candidate is about to be the part."""
        going = self._replacement
        if going is None or going.part.name != running.part.name or not going.part.takes_over:
            return False
        return going.stage is Stage.ALONGSIDE and not going.candidate.ended()

    def _await_end(self, running: _Running, now: float) -> None:
        late = now - running.since > self._limits.stop_timeout_s
        if running.process and not running.process.ended():
            if late:
                running.process.kill()
            return
        self._report(Stopped(running.part.name, not late))
        running.deaths, running.starts = 0, 0
        try:
            self._start(running, now)
        except OSError as error:
            self._end_restart(running, f"cannot run {running.part.argv[0]}: {error.strerror}")
            self._start_again(running, now)

    def _continue(self, replacement: RollingReplacement, now: float) -> None:
        if replacement.has_come(now):
            self._hand_over(replacement, now)
        if replacement.moved_on(now):
            self._record()
            if replacement.stage is Stage.OVER:
                self._report(self._end_of(replacement))

    def _hand_over(self, replacement: RollingReplacement, now: float) -> None:
        running, candidate = self._running[replacement.part.name], replacement.candidate
        replacement.let_go(running.process, running.started_at, now)
        running.part, running.process, running.started_at = replacement.part, candidate, replacement.started_at
        running.deaths, running.starts, running.ever_ready = 0, 1, True
        self._enter(running, Phase.READY, now)

    def _end_of(self, replacement: RollingReplacement) -> Replaced | NotReplaced:
        name = replacement.part.name
        if replacement.error is None:
            return Replaced(name, replacement.took_s)
        return NotReplaced(name, f"{replacement.error}; {self._last_words(name)}")

    def _start(self, running: _Running, now: float) -> None:
        part = running.part
        ready_file(self._data, part.name).unlink(missing_ok=True)
        if part.argv:
            environ = {**self._environ, **part.env}
            running.process = ManagedProcess(part.argv, environ, self._log(part.name))
            if self._announced:
                self._set_priority(running)
        running.starts += 1
        running.started_at = time.time()
        self._enter(running, Phase.STARTING, now)

    def _start_again(self, running: _Running, now: float) -> None:
        """Not started for want of space or memory, it is tried again as one that has died."""
        try:
            self._start(running, now)
        except OSError as error:
            self._died(running, now, f"cannot be started: {error}")

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        for name in (*self._running, "up"):
            log = self._log(name)
            with self._faults.writing(f"{log.name}.1"):
                rotate(log, self._limits.logs)
        if FILE in self._faults:
            self._record()
        if self._announced:
            self._share_out()

    def _share_out(self) -> None:
        for running in self._running.values():
            self._set_priority(running)

    def _set_priority(self, running: _Running) -> None:
        """Lowers its priority as far as allowed; where the system does not let it be raised again, it stays lowered."""
        part, process = running.part, running.process
        if process is None or not part.niceness:
            return
        wanted = part.niceness if part.may_lower_priority() else 0
        if wanted > process.niceness or can_take_priority_back():
            process.set_niceness(wanted)

    def _await_ready(self, running: _Running, now: float) -> None:
        if running.process and running.process.ended():
            self._died(running, now, how_it_ended(running.process.exit_code))
            return
        listeners = running.part.ready()
        if listeners is not None:
            running.listeners = dict(listeners)
            running.ever_ready, running.overdue = True, 0
            took_s = time.monotonic() - running.since
            self._enter(running, Phase.READY, now)
            self._end_restart(running)
            self._report(Ready(running.part.name, took_s))
        elif now - running.since > (allowed_s := self._limits.start_timeout_s * 2 ** min(running.overdue, DOUBLINGS)):
            if running.process:
                stop_all([running.process], self._limits.stop_timeout_s)
            running.overdue += 1
            self._died(running, now, f"was not ready within {allowed_s:g} s", tries=1)

    def _died(self, running: _Running, now: float, why: str, tries: int = TRIES) -> None:
        running.deaths += 1
        name = running.part.name
        if not running.ever_ready and running.deaths >= tries:
            raise StackError(f"{name} cannot start: it {why}; {self._last_words(name)}")
        running.pause_s = pause_after(running.deaths, self._limits.restart_backoff_s)
        self._end_restart(running, f"{why}; {self._last_words(name)}")
        self._enter(running, Phase.RESTARTING, now)
        self._report(Died(name, why, running.pause_s))

    def _end_restart(self, running: _Running, error: str | None = None) -> None:
        if running.restart is not None:
            if error is not None:
                running.part = running.restart.earlier
            running.restart.end(error)
            running.restart = None

    def _enter(self, running: _Running, phase: Phase, now: float) -> None:
        running.phase = phase
        running.since = now
        self._record()

    def _record(self) -> None:
        with self._faults.writing(FILE):
            write_state(self._data, self.state())

    def _log(self, part: str) -> Path:
        return self._data / "logs" / f"{part}.log"

    def _last_words(self, part: str) -> str:
        log = self._log(part)
        lines = tail(log).strip().splitlines()
        return f"the last line of {log}: {lines[-1].strip()}" if lines else f"{log} is empty"


def _state(running: _Running, process: ManagedProcess, state: str, started_at: float) -> ProcessState:
    """One process of a part, which has two while it is being replaced."""
    return ProcessState(
        name=running.part.name,
        pid=process.identity.pid,
        create_time=process.identity.create_time,
        start_id=process.identity.start_id,
        started_at=started_at,
        restarts=running.starts - 1,
        level=running.level,
        state=state,
    )
