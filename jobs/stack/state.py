"""What a data directory records of its stack: `<data>/stack.json`, written at each change, and the lock of its `up`."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from jobs.errors import StackError
from jobs.stack.process import Identity, Leftover, stop_all
from schemas.readiness import read_json, write_json

FILE = "stack.json"
DATA_VARIABLE = "WAYSTATION_DATA"
NAME_IT = "start one with `waystation up`, or choose another data directory with --data"


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack. Times in seconds since the epoch; `start_id` as in :class:`Identity`; `level`: lower
    ones start first and stop last.

    `state` is `starting`, `ready`, `restarting` (then the pid is that of the one that died) or `stopping` (to start
    again at once). A part that is being replaced has two processes: the second is `alongside`, the candidate until it
    has caught up, and then `leaving`, the old one.
    """

    name: str
    pid: int
    create_time: float
    started_at: float
    restarts: int
    level: int
    state: str
    start_id: str = ""

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.create_time, self.start_id)


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """`ready` once all parts have been; `listeners` by name, `host:port`; `configuration`: the files it was started
    with; `gateways`: the names of the gateways by part."""

    supervisor_pid: int
    supervisor_create_time: float
    ready: bool
    bootstrap: str
    listeners: dict[str, str]
    configuration: list[str]
    processes: list[ProcessState]
    gateways: dict[str, str] = {}
    supervisor_start_id: str = ""

    @property
    def supervisor(self) -> Identity:
        return Identity(self.supervisor_pid, self.supervisor_create_time, self.supervisor_start_id)


def read_state(data: Path) -> StackState | None:
    """The last recorded stack of this directory, running or not; None if there is none."""
    content = read_json(data / FILE)
    try:
        return msgspec.convert(content, StackState)
    except msgspec.ValidationError:
        return None


def write_state(data: Path, state: StackState) -> None:
    write_json(data / FILE, json.loads(msgspec.json.encode(state)))


def forget_state(data: Path) -> None:
    (data / FILE).unlink(missing_ok=True)


def state_if_running(data: Path) -> StackState | None:
    """The stack that runs in this directory; None if none does."""
    state = read_state(data)
    return state if state is not None and state.supervisor.alive() else None


def why_no_stack(data: Path) -> str:
    """Why no stack runs in the directory."""
    if not data.is_dir():
        return f"no stack has ever run in {data}, which does not exist: {NAME_IT}"
    return f"no stack is running in {data}: {NAME_IT}"


def running_state(data: Path) -> StackState:
    """The stack that runs in this directory. Raises StackError if none does."""
    state = state_if_running(data)
    if state is None:
        raise StackError(why_no_stack(data))
    return state


def written(data: Path, file: Path) -> IO[bytes]:
    """A file in the data directory, empty and open for writing; makes the directories. Raises StackError if that is not
    possible."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("wb")
    except OSError as error:
        raise StackError(
            f"cannot write {file}: {error.strerror}; make the data directory {data} a directory that this user can "
            "write to, or choose another one with --data"
        ) from error


@contextmanager
def hold(data: Path) -> Iterator[None]:
    """Hold the lock of this directory's `up`. Raises StackError if another `up` has it, or if nothing can be written
    there; a killed one holds nothing."""
    with written(data, data / "up.lock") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(_already_running(data, state_if_running(data))) from None
        yield


def refuse_second(data: Path) -> None:
    """Raises StackError if a stack runs in the directory, before anything of it is touched. One that is just starting
    is only noticed by :func:`hold`."""
    if (state := state_if_running(data)) is not None:
        raise StackError(_already_running(data, state))


def _already_running(data: Path, state: StackState | None) -> str:
    who = "" if state is None else f" (pid {state.supervisor_pid})"
    return (
        f"a stack{who} is already running in {data}: stop it with `waystation down`, or start another one with "
        f"--data DIR and --free-ports"
    )


def stop_leftovers(data: Path, timeout_s: float) -> list[str]:
    """Stop what a killed `up` of this directory left running, and nothing else; returns the names of the parts stopped.

    The caller must hold the directory.
    """
    state = read_state(data)
    if state is None:
        return []
    stopped: list[str] = []
    for level in sorted({process.level for process in state.processes}, reverse=True):
        left = [
            (process.name, Leftover(process.identity, {DATA_VARIABLE: str(data), "WAYSTATION_PART": process.name}))
            for process in state.processes
            if process.level == level
        ]
        living = [(name, leftover) for name, leftover in left if not leftover.ended()]
        stop_all([leftover for _, leftover in living], timeout_s)
        stopped += dict(living)
    forget_state(data)
    return stopped
