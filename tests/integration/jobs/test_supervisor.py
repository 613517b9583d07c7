"""The supervisor, with tiny children in the place of the real parts."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jobs.errors import StackError
from jobs.stack import local
from jobs.stack.local import Console
from jobs.stack.part import Part, levels, pause_after
from jobs.stack.parts import announced
from jobs.stack.process import Identity, can_take_priority_back, wait_until
from jobs.stack.state import StackState, forget_state, hold, read_state, running_state, stop_leftovers, write_state
from jobs.stack.supervisor import Died, Event, Limits, Ready, Stopped, Supervisor
from tests.integration.jobs.stepped_clock import step_wall_clock
from tests.integration.jobs.ticking import DEADLINE_S, tick_until

ROOT = Path(__file__).parents[3]
LIMITS = Limits(start_timeout_s=20.0, stop_timeout_s=5.0, restart_backoff_s=0.05, settle_s=0.0)
WORKER = (
    "import os, time\n"
    "from schemas.readiness import announce_ready\n"
    "environ = os.environ\n"
    "announce_ready(environ['WAYSTATION_DATA'], environ['WAYSTATION_PART'], {'listeners': {'p': '127.0.0.1:1'}})\n"
    "time.sleep(600)\n"
)
UP = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from pathlib import Path\n"
    "from test_supervisor import run_until, worker\n"
    "import signal, threading\n"
    "data, stopping = Path(sys.argv[2]), threading.Event()\n"
    "signal.signal(signal.SIGTERM, lambda *_: stopping.set())\n"
    "run_until(stopping, data, [worker(data, 'one'), worker(data, 'two', after=('one',))])\n"
)
"""An `up` of its own, to be killed or stopped."""


def worker(data: Path, name: str, code: str = WORKER, after: tuple[str, ...] = ()) -> Part:
    env = {"WAYSTATION_DATA": str(data), "WAYSTATION_PART": name, "PYTHONPATH": str(ROOT)}
    return Part(name, (sys.executable, "-c", code), env, lambda: announced(data, name), after)


def supervisor(data: Path, parts: list[Part], events: list[Event], limits: Limits = LIMITS) -> Supervisor:
    return Supervisor(data, parts, limits, os.environ, events.append, Identity.of(os.getpid()))


def run_until(stopping: threading.Event, data: Path, parts: list[Part]) -> None:
    console = Console(say=lambda line: None, event=lambda event: None, ready=lambda state, seconds: None)
    local.run(data, LIMITS.stop_timeout_s, lambda: supervisor(data, parts, []), stopping, console)


def pid_of(data: Path, name: str) -> int:
    state = read_state(data)
    assert state is not None
    return next(process.pid for process in state.processes if process.name == name)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def make(tmp_path: Path, events: list[Event]) -> Iterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def one(*parts: Part, limits: Limits = LIMITS) -> Supervisor:
        made.append(supervisor(tmp_path, list(parts), events, limits))
        return made[-1]

    yield one
    for running in made:
        running.stop()


@pytest.fixture
def living_up(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An `up` with two parts, ready; its parts do not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", UP, str(Path(__file__).parent), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    parts: list[Identity] = []
    try:
        assert wait_until(lambda: (state := read_state(tmp_path)) is not None and state.ready, DEADLINE_S)
        parts = [part.identity for part in running_state(tmp_path).processes]
        yield process
    finally:
        process.kill()
        process.wait()
        for part in parts:
            if part.alive():
                os.kill(part.pid, signal.SIGKILL)


@pytest.fixture
def killed_up(tmp_path: Path, living_up: "subprocess.Popen[bytes]") -> StackState:
    """What an `up` with two parts left behind when it was killed."""
    living_up.kill()
    living_up.wait()
    state = read_state(tmp_path)
    assert state is not None
    assert all(left.identity.alive() for left in state.processes)
    return state


def test_parts_start_in_order_of_dependency(make, tmp_path, events):
    steps: list[str] = []
    step = Part("step", (), {}, lambda: steps.append("done") or {}, after=("one",))
    running = make(worker(tmp_path, "two", after=("step",)), step, worker(tmp_path, "one"))
    tick_until(running, lambda: running.ready)
    assert [event.part for event in events if isinstance(event, Ready)] == ["one", "step", "two"]
    assert steps == ["done"]
    assert running.state().listeners == {"p": "127.0.0.1:1"}


def test_a_killed_part_is_started_again_visibly(make, tmp_path, events):
    running = make(worker(tmp_path, "one"))
    tick_until(running, lambda: running.ready)
    first = pid_of(tmp_path, "one")
    os.kill(first, signal.SIGKILL)
    tick_until(running, lambda: len([event for event in events if isinstance(event, Ready)]) == 2)
    died = next(event for event in events if isinstance(event, Died))
    assert died == Died("one", "was killed by signal 9", 0.05)
    state = read_state(tmp_path)
    assert state is not None
    assert (state.processes[0].restarts, state.processes[0].state) == (1, "ready")
    assert state.processes[0].pid != first


def test_a_part_gives_way_once_all_are_ready_and_from_then_on(make, tmp_path, events):
    running = make(worker(tmp_path, "one")._replace(niceness=7), worker(tmp_path, "two", after=("one",)))
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    tick_until(running, lambda: running.ready)
    assert os.getpriority(os.PRIO_PROCESS, pid_of(tmp_path, "one")) == ours
    running.announce()
    assert os.getpriority(os.PRIO_PROCESS, pid_of(tmp_path, "one")) == 7
    assert os.getpriority(os.PRIO_PROCESS, pid_of(tmp_path, "two")) == ours
    os.kill(pid_of(tmp_path, "one"), signal.SIGKILL)
    tick_until(running, lambda: len([event for event in events if isinstance(event, Ready)]) == 3)
    assert os.getpriority(os.PRIO_PROCESS, pid_of(tmp_path, "one")) == 7


@pytest.mark.skipif(not can_take_priority_back(), reason="this system lets nobody take priority back (RLIMIT_NICE)")
def test_a_part_gives_way_only_while_it_may(make, tmp_path):
    busy = tmp_path / "busy"
    busy.touch()
    part = worker(tmp_path, "one")._replace(niceness=7, may_lower_priority=lambda: not busy.exists())
    running = make(part)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    tick_until(running, lambda: running.ready)
    running.announce()
    pid = pid_of(tmp_path, "one")
    assert os.getpriority(os.PRIO_PROCESS, pid) == ours
    busy.unlink()
    tick_until(running, lambda: os.getpriority(os.PRIO_PROCESS, pid) == 7)
    busy.touch()
    tick_until(running, lambda: os.getpriority(os.PRIO_PROCESS, pid) == ours)


def test_stopping_stops_the_last_first_and_forgets(make, tmp_path, events):
    running = make(worker(tmp_path, "one"), worker(tmp_path, "two", after=("one",)))
    tick_until(running, lambda: running.ready)
    pids = [pid_of(tmp_path, name) for name in ("one", "two")]
    running.stop()
    assert [event for event in events if isinstance(event, Stopped)] == [Stopped("two", True), Stopped("one", True)]
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert read_state(tmp_path) is None


def test_a_part_that_cannot_start_ends_the_start_with_its_last_words(make, tmp_path, events):
    running = make(worker(tmp_path, "one", "print('the port is taken'); raise SystemExit(1)"))
    with pytest.raises(StackError, match=r"one cannot start: it ended with status 1; .*one\.log: the port is taken"):
        tick_until(running, lambda: running.ready)
    assert len([event for event in events if isinstance(event, Died)]) == 2


def test_what_is_started_again_gets_twice_as_long_each_time_it_is_not_ready(make, tmp_path, events):
    may_be_ready = True

    def died() -> list[str]:
        return [event.why for event in events if isinstance(event, Died)]

    part = worker(tmp_path, "one", "import time; time.sleep(600)")
    part = part._replace(ready=lambda: {} if may_be_ready else None)
    running = make(part, limits=LIMITS._replace(start_timeout_s=0.1))
    for _ in range(2):
        events.clear()
        may_be_ready = True
        tick_until(running, lambda: running.state().processes[0].state == "ready")
        may_be_ready = False
        os.kill(pid_of(tmp_path, "one"), signal.SIGKILL)
        tick_until(running, lambda: len(died()) == 3)
        overdue = ["was not ready within 0.1 s", "was not ready within 0.2 s"]
        assert died() == ["was killed by signal 9", *overdue], "once it was ready, what was before does not count"


def test_a_part_that_is_not_ready_in_time_ends_the_start(make, tmp_path):
    running = make(worker(tmp_path, "one", "import time; time.sleep(600)"), limits=LIMITS._replace(start_timeout_s=0.2))
    with pytest.raises(StackError, match=r"one cannot start: it was not ready within 0\.2 s"):
        tick_until(running, lambda: running.ready)


def test_a_step_of_the_wall_clock_ends_no_part(make, tmp_path, events, monkeypatch):
    running = make(worker(tmp_path, "one"))
    tick_until(running, lambda: running.ready)
    step_wall_clock(monkeypatch, 3600.0)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)
    pid = pid_of(tmp_path, "one")
    running.tick()
    assert (pid_of(tmp_path, "one"), [type(event) for event in events]) == (pid, [Ready])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has start ids")
def test_a_step_of_the_wall_clock_hides_no_stack_and_no_leftover(tmp_path, killed_up, monkeypatch):
    step_wall_clock(monkeypatch, 3600.0)
    assert all(left.identity.alive() for left in killed_up.processes)
    assert stop_leftovers(tmp_path, LIMITS.stop_timeout_s) == ["two", "one"]
    assert not any(left.identity.alive() for left in killed_up.processes)


def test_what_a_killed_up_left_is_stopped_by_the_next(tmp_path, killed_up):
    stopping = threading.Event()
    said: list[str] = []

    def ready(state: StackState, seconds: float) -> None:
        stopping.set()

    console = Console(said.append, lambda event: None, ready)
    make_supervisor = lambda: supervisor(tmp_path, [worker(tmp_path, "one")], [])  # noqa: E731
    local.run(tmp_path, LIMITS.stop_timeout_s, make_supervisor, stopping, console)
    assert not any(left.identity.alive() for left in killed_up.processes)
    assert [line.split(",")[0] for line in said] == ["stopped two", "stopped one"]


def test_down_stops_a_living_up_and_waits(tmp_path, living_up):
    parts = [part.identity for part in running_state(tmp_path).processes]
    assert local.stop(tmp_path, LIMITS.stop_timeout_s)
    assert living_up.wait(DEADLINE_S) == 0
    assert not any(part.alive() for part in parts)
    assert read_state(tmp_path) is None


def test_down_stops_what_a_killed_up_left(tmp_path, killed_up):
    assert local.stop(tmp_path, LIMITS.stop_timeout_s)
    assert not any(left.identity.alive() for left in killed_up.processes)
    assert not local.stop(tmp_path, LIMITS.stop_timeout_s)


def test_a_foreign_process_with_a_recorded_pid_is_never_touched(tmp_path, killed_up):
    foreign = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        recycled = [process.__class__(**{**_fields(process), "pid": foreign.pid}) for process in killed_up.processes]
        write_state(tmp_path, StackState(**{**_fields(killed_up), "processes": _long_ago(recycled)}))
        assert stop_leftovers(tmp_path, 1.0) == []
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def _fields(struct) -> dict:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _long_ago(processes: list) -> list:
    start = {"create_time": 1.0, "start_id": "boot 1"}
    return [process.__class__(**{**_fields(process), **start}) for process in processes]


def test_a_second_up_is_refused(tmp_path):
    with hold(tmp_path), pytest.raises(StackError, match="is already running in"):
        run_until(threading.Event(), tmp_path, [])
    run_until(_set(), tmp_path, [])


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_nothing_runs_over_an_empty_directory(tmp_path):
    with pytest.raises(StackError, match="no stack is running"):
        running_state(tmp_path)
    forget_state(tmp_path)


def test_pauses_double_up_to_a_bound():
    assert [pause_after(deaths, 0.5) for deaths in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert pause_after(100, 0.5) == 30.0


def test_levels():
    ready = dict
    parts = [Part("c", (), {}, ready, ("a", "b")), Part("a", (), {}, ready), Part("b", (), {}, ready, ("a",))]
    assert levels(parts) == {"a": 0, "b": 1, "c": 2}
    with pytest.raises(StackError, match="unknown"):
        levels([Part("x", (), {}, ready, ("nowhere",))])


def test_all_parts_are_stopped_though_the_terminal_is_closed(tmp_path: Path) -> None:
    """What is reported then cannot be written."""

    def report(event: Event) -> None:
        if isinstance(event, Stopped):
            raise BrokenPipeError

    parts = [worker(tmp_path, "one"), worker(tmp_path, "two", after=("one",))]
    running = Supervisor(tmp_path, parts, LIMITS, os.environ, report, Identity.of(os.getpid()))
    tick_until(running, lambda: running.ready)
    running.announce()
    state = running_state(tmp_path)
    running.stop()
    assert not any(psutil.pid_exists(process.pid) for process in state.processes)
    with pytest.raises(StackError, match="no stack is running"):
        running_state(tmp_path)
