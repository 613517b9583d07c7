"""Processes and their identity: pid and start, so that a recycled pid is never signalled.

:class:`ManagedProcess` is a child of ours, :class:`Leftover` one that a killed supervisor left behind; both are
:class:`Stoppable`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

CREATE_TIME_TOLERANCE_S = 1.5
"""Without a start id: a create time is computed from the wall clock, which is adjusted now and then."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_TICKS = 22 - 3
"""Where `/proc/<pid>/stat` has the start time, counted from the state (proc_pid_stat(5): fields 22 and 3)."""

GRACE_S = 5.0
"""How long children of a process that was asked to stop (a JVM) may outlive it."""

POLL_S = 0.05

LOADING_S = 1.0
"""How long a process may have no environment because its program is still being loaded: usually some ms."""

LEAST_PRIORITY = 19
"""The highest niceness there is."""

IDLE = 20
"""Below any niceness: only processor time that nobody else wants (`SCHED_IDLE`). On other systems than Linux 19."""


class Identity(NamedTuple):
    """A process that was running: `create_time` in seconds since the epoch; `start_id`: the boot of the system, and the
    start of the process in clock ticks since then. A step of the wall clock shifts every create time, but no start id.
    Only Linux has start ids; elsewhere it is empty, and the create time counts.
    """

    pid: int
    create_time: float
    start_id: str = ""

    @classmethod
    def of(cls, pid: int) -> "Identity":
        """Of a running process or a zombie. Raises psutil.NoSuchProcess."""
        return cls(pid, psutil.Process(pid).create_time(), _start_id(pid))

    def alive(self) -> bool:
        """Whether this very process is still running; a zombie is not."""
        try:
            return self._is_same(Identity.of(self.pid)) and _is_running(self.pid)
        except psutil.NoSuchProcess:
            return False

    def _is_same(self, other: "Identity") -> bool:
        """`other`: the process that has the pid now."""
        if self.start_id:
            return self.start_id == other.start_id
        return abs(other.create_time - self.create_time) < CREATE_TIME_TOLERANCE_S

    def ask_to_stop(self) -> None:
        """SIGTERM, if it is alive."""
        if self.alive():
            _signal(self.pid, signal.SIGTERM)


class Stoppable(Protocol):
    """Something that runs; `ended` once none of its processes is left."""

    def ended(self) -> bool: ...

    def ask_to_stop(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL to it and all it has started."""


def stop_all(running: Sequence[Stoppable], timeout_s: float) -> bool:
    """Ask all to stop at the same time, and kill those still running after `timeout_s`. False if one had to be
    killed."""
    for process in running:
        process.ask_to_stop()
    if wait_until(lambda: all([process.ended() for process in running]), timeout_s):
        return True
    late = [process for process in running if not process.ended()]
    for process in late:
        process.kill()
    wait_until(lambda: all([process.ended() for process in late]), timeout_s)
    return False


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


class ManagedProcess:
    """A running child in its own process group, with its output appended to a log file.

    It has a group and no session of its own: Linux first divides processor time among sessions (autogroups), so
    niceness would have no effect between parts.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                list(argv),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.identity = Identity.of(self._child.pid)
        self.exit_code: int | None = None
        self._grace_until: float | None = None
        self._asked = False
        self.niceness = 0

    def ended(self) -> bool:
        """Whether the process has ended; then `exit_code` is set and nothing of its group is left."""
        # A child keeps its pid until it is reaped: no other process can be mistaken for it, or get its signals.
        if self.exit_code is None and not _is_running(self._child.pid) and not self._group_may_finish():
            _signal_group(self._child.pid, signal.SIGKILL)
            self.exit_code = self._child.wait()
        return self.exit_code is not None

    def ask_to_stop(self) -> None:
        self._asked = True
        if not self.ended():
            _signal(self._child.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._asked = False
        if not self.ended():
            _signal_group(self._child.pid, signal.SIGKILL)

    def set_niceness(self, niceness: int) -> None:
        """Set the niceness of its whole group, with all threads, or :data:`IDLE`; what these start inherits it. It
        never gets a higher priority than ours. `niceness` is the value last set."""
        if self.ended() or niceness == self.niceness:
            return
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PGRP, self._child.pid, max(ours, min(niceness, LEAST_PRIORITY)))
        if sys.platform == "linux" and IDLE in (niceness, self.niceness):
            _schedule(self._child.pid, os.SCHED_IDLE if niceness == IDLE else os.SCHED_OTHER)
        self.niceness = niceness

    def _group_may_finish(self) -> bool:
        """Whether processes that it started are still running and may yet stop by themselves."""
        if not self._asked:
            return False
        now = time.monotonic()
        self._grace_until = self._grace_until or now + GRACE_S
        return now < self._grace_until and any(_group(self._child.pid))


class Leftover:
    """A part of a stack whose supervisor was killed: its process, and what that started in the same group.

    If the process itself is gone, a member counts as ours if its environment has all of `marks`, which no program has
    by chance: the kernel may have reused the group's number. A member once recognised stays so: while it exits it no
    longer has an environment, but still has its ports and locks.
    """

    def __init__(self, identity: Identity, marks: Mapping[str, str]) -> None:
        self.identity = identity
        self._marks = marks
        self._known: set[Identity] = set()

    def ended(self) -> bool:
        return not self.identity.alive() and not self._members()

    def ask_to_stop(self) -> None:
        self._each(signal.SIGTERM)

    def kill(self) -> None:
        self._each(signal.SIGKILL)
        for member in self._members():
            _signal(member.pid, signal.SIGKILL)

    def _each(self, number: int) -> None:
        for member in {self.identity} if self.identity.alive() else self._members():
            _signal(member.pid, number)

    def _members(self) -> set[Identity]:
        """Living members of the group, without its leader, that have our marks or had them."""
        for process in _group(self.identity.pid):
            with suppress(psutil.Error):  # it has ended, or belongs to another user
                identity = Identity.of(process.pid)
                if identity not in self._known and self._marks.items() <= _environment(process).items():
                    self._known.add(identity)
        self._known = {member for member in self._known if member.alive()}
        return self._known


def _start_id(pid: int) -> str:
    """The start id of a running process or a zombie. Raises psutil.NoSuchProcess."""
    if sys.platform != "linux":
        return ""
    try:
        _, _, after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return f"{_boot_id()} {after_name.split()[START_TICKS]}"


@cache
def _boot_id() -> str:
    return BOOT_ID.read_text().strip()


def _is_running(pid: int) -> bool:
    """Whether there is a process with this pid that is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _group(leader: int) -> Iterator[psutil.Process]:
    """Living processes of the group that `leader` created, without the leader."""
    for pid in psutil.pids():
        try:
            if pid != leader and os.getpgid(pid) == leader and _is_running(pid):
                yield psutil.Process(pid)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue


def _schedule(leader: int, policy: int) -> None:
    """Set the policy for all threads of the group, including those started meanwhile without it."""
    done: set[int] = set()
    while new := _threads(leader) - done:
        for thread in new:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(0))
        done |= new


def _threads(leader: int) -> set[int]:
    found: set[int] = set()
    for pid in (leader, *(process.pid for process in _group(leader))):
        with suppress(psutil.Error):
            found.update(thread.id for thread in psutil.Process(pid).threads())
    return found


def _environment(process: psutil.Process) -> dict[str, str]:
    """Its environment; during `execve` a process has none for a moment, and could not be recognised as ours."""
    wait_until(lambda: bool(process.environ()), LOADING_S)
    return dict(process.environ())


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_group(leader: int, number: int) -> None:
    """Only for a group whose leader is known to be ours: alive, or not yet reaped."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # macOS refuses if only zombies are left
        return


@cache
def can_take_priority_back() -> bool:
    """Whether a process of ours that lowered its priority can be given the former one again. On Linux a thread, which
    has its own niceness, tries it: root may not do so in some containers, and others may within their limit."""
    if sys.platform != "linux":
        return os.geteuid() == 0
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(_lowers_and_restores_priority).result()


def _lowers_and_restores_priority() -> bool:
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, ours + 1)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, ours)
    except PermissionError:
        return False
    return True


def how_it_ended(exit_code: int | None) -> str:
    """The end of a process as a phrase: "ended with status 1"."""
    if exit_code is not None and exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended with status {exit_code}"
