"""Replacing a part while it runs, with tiny children in the place of routers (R5)."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jobs.errors import StackError
from jobs.stack import replacing
from jobs.stack.generations import generation_of, record
from jobs.stack.part import Part
from jobs.stack.parts import announced, lowering_priority_at_start
from jobs.stack.process import IDLE, LEAST_PRIORITY, Identity, can_take_priority_back
from jobs.stack.replacing import Answer, Replacing, Request, RouterPart, answer_to, ask
from jobs.stack.restarting import GatewayRequest, Restarting, requests
from jobs.stack.state import ProcessState, read_state, stop_leftovers
from jobs.stack.supervisor import Event, Limits, NotReplaced, Replaced, Supervisor
from schemas.readiness import alongside, announce_ready
from schemas.settings import load_settings
from tests.integration.jobs.ticking import tick_until

ROOT = Path(__file__).parents[3]
SETTINGS = load_settings([ROOT / "conf" / "base.toml"], {"WAYSTATION_STACK__ROUTER_PROCESSES": "2"})
LIMITS = Limits(start_timeout_s=20.0, stop_timeout_s=5.0, restart_backoff_s=0.05, settle_s=0.2)
ROUTER = (
    "import os, sys, time\n"
    "from schemas.readiness import announce_ready, alongside\n"
    "environ, late = os.environ, '--alongside' in sys.argv\n"
    "if 'broken' in sys.argv and late: sys.exit('this version cannot start')\n"
    "name = environ['WAYSTATION_PART']\n"
    "while os.path.exists(environ['WAYSTATION_DATA'] + '/hold'): time.sleep(0.01)\n"
    "if not (late and 'slow' in sys.argv):\n"
    "    announce_ready(environ['WAYSTATION_DATA'], alongside(name) if late else name, {})\n"
    "time.sleep(600)\n"
)


def router_part(data: Path, name: str, generation: int, *kind: str) -> Part:
    env = {"WAYSTATION_DATA": str(data), "WAYSTATION_PART": name, "PYTHONPATH": str(ROOT)}
    argv = (sys.executable, "-c", ROUTER, *kind, str(generation))
    return lowering_priority_at_start(Part(name, argv, env, lambda: announced(data, name)), SETTINGS, data)


ROUTERS = ("router-backup", "router-active")


class StackHarness:
    """A supervisor over two routers, ticked by hand; a new version is of the `kind` that `interpreter` says."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.events: list[Event] = []
        roles = {"router-backup": ["backup"], "router-active": ["active"]}
        record(data, ["active", "backup"], 1)

        def of(name: str) -> Callable[[Request, int], Part]:
            return lambda request, generation: router_part(data, name, generation, *request.interpreter)

        attend = Replacing(data, [RouterPart(name, of_it, of(name)) for name, of_it in roles.items()])
        parts = [router_part(data, name, 1) for name in roles]
        me = Identity.of(os.getpid())
        self.supervisor = Supervisor(data, parts, LIMITS, os.environ, self.events.append, me, attend=attend)
        self.tick_until(lambda: self.supervisor.ready)
        self.supervisor.announce()

    def tick_until(self, condition: Callable[[], bool]) -> None:
        tick_until(self.supervisor, condition)

    def ask(self, *kind: str, roles: tuple[str, ...] = ("active", "backup"), timeout_s: float = 20.0) -> str:
        request = Request(
            id=f"{time.monotonic_ns()}",
            roles=list(roles),
            interpreter=list(kind),
            configuration=[],
            timeout_s=timeout_s,
        )
        ask(self.data, request)
        return request.id

    def answer(self, request_id: str) -> Answer:
        self.tick_until(lambda: (answer := answer_to(self.data, request_id)) is not None and answer.over)
        answer = answer_to(self.data, request_id)
        assert answer is not None
        return answer

    def processes(self, name: str) -> list[ProcessState]:
        state = read_state(self.data)
        assert state is not None
        return [process for process in state.processes if process.name == name]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[StackHarness]:
    made = StackHarness(tmp_path)
    yield made
    made.supervisor.stop()


def test_each_part_is_another_process_and_never_both_at_once(harness: StackHarness) -> None:
    """R5: the backup first; an old process goes when the new one is level."""
    old = {name: harness.processes(name)[0].pid for name in ("router-active", "router-backup")}
    request = harness.ask()
    seen: set[tuple[int, int]] = set()

    def over() -> bool:
        seen.add((len(harness.processes("router-backup")), len(harness.processes("router-active"))))
        assert all(any(p.identity.alive() for p in harness.processes(name)) for name in old)
        answer = answer_to(harness.data, request)
        return answer is not None and answer.over

    harness.tick_until(over)
    assert harness.answer(request).error is None
    assert [event.part for event in harness.events if isinstance(event, Replaced)] == ["router-backup", "router-active"]
    assert (2, 2) not in seen
    for name, pid in old.items():
        (now,) = harness.processes(name)
        assert (now.pid != pid, now.state, now.restarts) == (True, "ready", 0)
        assert not psutil.pid_exists(pid)
    assert generation_of(harness.data, ["active"]) == generation_of(harness.data, ["backup"]) == 2


def test_what_replaced_is_what_is_started_again(harness: StackHarness) -> None:
    harness.answer(harness.ask("new"))
    pid = harness.processes("router-active")[0].pid
    assert "new" in psutil.Process(pid).cmdline()
    os.kill(pid, signal.SIGKILL)
    harness.tick_until(
        lambda: [(p.pid != pid, p.state) for p in harness.processes("router-active")] == [(True, "ready")]
    )
    again = psutil.Process(harness.processes("router-active")[0].pid).cmdline()
    assert "new" in again
    assert "--alongside" not in again


@pytest.mark.parametrize(
    ("kind", "timeout_s", "why"),
    [("broken", 20.0, "ended with status 1"), ("slow", 0.3, "did not catch up within 0.3 s")],
)
def test_one_that_does_not_become_level_goes_and_the_old_one_stays(
    harness: StackHarness, kind: str, timeout_s: float, why: str
) -> None:
    before = {name: harness.processes(name)[0].pid for name in ("router-active", "router-backup")}
    answer = harness.answer(harness.ask(kind, timeout_s=timeout_s))
    assert answer.error is not None
    assert answer.error.startswith("router-backup was not replaced, and its old process keeps running: the new process")
    assert why in answer.error
    assert [event.part for event in harness.events if isinstance(event, NotReplaced)] == ["router-backup"]
    assert {name: [p.pid for p in harness.processes(name)] for name in before} == {n: [p] for n, p in before.items()}
    assert generation_of(harness.data, ["backup"]) == 1
    assert harness.answer(harness.ask()).error is None, "the next is tried anew"


def test_the_old_one_is_started_again_while_the_new_one_comes(harness: StackHarness) -> None:
    """Whatever happens to the new process, the part is kept running meanwhile."""
    harness.ask("slow", roles=("active",))
    harness.tick_until(lambda: len(harness.processes("router-active")) == 2)
    old, new = harness.processes("router-active")
    assert (old.state, new.state) == ("ready", "alongside")
    os.kill(old.pid, signal.SIGKILL)
    harness.tick_until(lambda: harness.processes("router-active")[0].pid != old.pid)
    harness.tick_until(lambda: harness.processes("router-active")[0].state == "ready")
    assert harness.processes("router-active")[1].pid == new.pid


def niceness(process: ProcessState) -> int:
    """Of its main thread; IDLE if it gets a processor only while nobody else wants one."""
    is_idle = sys.platform == "linux" and os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    return IDLE if is_idle else os.getpriority(os.PRIO_PROCESS, process.pid)


OURS = os.getpriority(os.PRIO_PROCESS, 0)
BEHIND = SETTINGS.stack.router_start_niceness if can_take_priority_back() else OURS
FAR_BEHIND = min(SETTINGS.stack.router_replace_niceness, IDLE if sys.platform == "linux" else LEAST_PRIORITY)
FAR_BEHIND = FAR_BEHIND if can_take_priority_back() else OURS


def test_the_new_one_gives_way_until_it_is_level_and_the_old_one_when_it_leaves(harness: StackHarness) -> None:
    """R5: neither takes a processor from the one whose messages count."""
    harness.ask("slow", roles=("active",))
    harness.tick_until(lambda: len(harness.processes("router-active")) == 2)
    old, new = harness.processes("router-active")
    assert (niceness(old), niceness(new)) == (OURS, FAR_BEHIND)
    announce_ready(harness.data, alongside("router-active"), {})
    harness.tick_until(lambda: niceness(new) == OURS)
    assert [(p.pid, p.state) for p in harness.processes("router-active")] == [
        (old.pid, "ready"),
        (new.pid, "alongside"),
    ]
    assert niceness(old) == OURS
    leaving: set[int] = set()

    def has_left() -> bool:
        now = harness.processes("router-active")
        leaving.update(niceness(p) for p in now if p.pid == old.pid and p.state == "leaving" and p.identity.alive())
        return [p.pid for p in now] == [new.pid]

    harness.tick_until(has_left)
    assert leaving <= {FAR_BEHIND}
    assert niceness(new) == OURS


def test_on_a_busy_machine_the_new_one_has_half_of_its_time_to_become_level(harness: StackHarness) -> None:
    harness.ask("slow", roles=("active",), timeout_s=2.0)
    harness.tick_until(lambda: len(harness.processes("router-active")) == 2)
    new = harness.processes("router-active")[1]
    assert niceness(new) == FAR_BEHIND
    harness.tick_until(lambda: niceness(new) == BEHIND)
    harness.tick_until(lambda: not new.identity.alive())


def test_one_that_was_killed_gives_way_to_the_other_until_it_is_ready(harness: StackHarness) -> None:
    """With nobody to give way to, it does not."""
    assert {niceness(one) for name in ROUTERS for one in harness.processes(name)} == {OURS}, "at the start nobody does"
    (harness.data / "hold").touch()
    for name, expected in zip(ROUTERS, (BEHIND, OURS), strict=True):
        (old,) = harness.processes(name)
        os.kill(old.pid, signal.SIGKILL)
        harness.tick_until(lambda name=name, old=old: harness.processes(name)[0].pid != old.pid)  # type: ignore[misc]
        assert niceness(harness.processes(name)[0]) == expected
    harness.tick_until(lambda: niceness(harness.processes(ROUTERS[0])[0]) == OURS)
    (harness.data / "hold").unlink()
    harness.tick_until(lambda: {one.state for name in ROUTERS for one in harness.processes(name)} == {"ready"})
    assert {niceness(one) for name in ROUTERS for one in harness.processes(name)} == {OURS}


def test_stopping_in_the_middle_leaves_nothing(harness: StackHarness) -> None:
    harness.ask("slow")
    harness.tick_until(lambda: len(harness.processes("router-backup")) == 2)
    pids = [process.pid for process in harness.processes("router-backup")]
    harness.supervisor.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_a_killed_up_left_in_the_middle_is_stopped_with_both_processes(harness: StackHarness) -> None:
    """Nothing has changed: the next `up` goes on with the old generation."""
    harness.ask("slow")
    harness.tick_until(lambda: len(harness.processes("router-backup")) == 2)
    left = [process.identity for process in harness.processes("router-backup")]
    reaper = threading.Thread(target=lambda: [os.waitpid(one.pid, 0) for one in left], daemon=True)
    reaper.start()
    assert stop_leftovers(harness.data, LIMITS.stop_timeout_s) == ["router-backup", "router-active"]
    assert not any(one.alive() for one in left)
    assert generation_of(harness.data, ["backup"]) == 1
    replacing.forget(harness.data)
    harness.ask()


def test_a_second_request_is_refused(harness: StackHarness) -> None:
    harness.ask("slow")
    with pytest.raises(StackError, match="replacement of routers is already in progress"):
        harness.ask()


def test_an_interpreter_that_is_not_there_ends_the_request_and_nothing_else(
    harness: StackHarness, tmp_path: Path
) -> None:
    part = router_part(tmp_path, "router-active", 2)._replace(argv=("/nowhere/python",))
    attend = Replacing(tmp_path, [RouterPart("router-active", ["active"], lambda *_: part)])
    request = harness.ask(roles=("active",))
    attend(harness.supervisor)
    answer = answer_to(tmp_path, request)
    assert answer is not None
    assert answer.error == "router-active was not replaced: cannot run /nowhere/python: No such file or directory"


def test_one_role_of_a_process_with_both_is_refused(harness: StackHarness, tmp_path: Path) -> None:
    attend = Replacing(tmp_path, [RouterPart("router", ["active", "backup"], lambda *_: pytest.fail("made"))])
    request = harness.ask(roles=("active",))
    attend(harness.supervisor)
    answer = answer_to(tmp_path, request)
    assert answer is not None
    assert answer.error == "active and backup run in one process: replace both, with --role both"


def test_a_router_is_not_replaced_while_the_dispatcher_is(tmp_path: Path) -> None:
    """R5: whoever asked is told so; the stack goes on."""
    sleep = (sys.executable, "-c", "import time; time.sleep(600)")
    record(tmp_path, ["active", "backup"], 1)
    router, is_slow = Part("router", sleep, {}, dict), [False]
    dispatcher = Part("dispatcher", sleep, {}, lambda: None if is_slow[0] else {}, takes_over=True)
    routers = Replacing(tmp_path, [RouterPart("router", ["active", "backup"], lambda request, generation: router)])
    others = Restarting(tmp_path, {"dispatcher": lambda request: dispatcher})

    def attend(supervisor: Supervisor) -> None:
        routers(supervisor)
        others(supervisor)

    parts, me = [router, dispatcher], Identity.of(os.getpid())
    supervisor = Supervisor(tmp_path, parts, LIMITS, os.environ, lambda event: None, me, attend=attend)
    try:
        tick_until(supervisor, lambda: supervisor.ready)
        supervisor.announce()
        is_slow[0] = True
        requests.ask(tmp_path, GatewayRequest(id="first", interpreter=[], configuration=[], part="dispatcher"))
        supervisor.tick()
        assert supervisor.is_replacing
        second = Request(id="second", interpreter=[], configuration=[], roles=["active", "backup"], timeout_s=20)
        ask(tmp_path, second)
        for _ in range(3):
            supervisor.tick()
        answer = answer_to(tmp_path, "second")
        assert answer is not None
        assert answer.error is not None
        assert "another part is being replaced" in answer.error
    finally:
        supervisor.stop()
