"""Restarting a gateway as another version, and replacing the dispatcher, with tiny children in their place (R1, R5)."""

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jobs.errors import StackError
from jobs.stack.part import Part
from jobs.stack.parts import announced
from jobs.stack.process import Identity
from jobs.stack.requests import Answer, forget
from jobs.stack.restarting import GatewayRequest, Restarting, requests
from jobs.stack.state import ProcessState, read_state
from jobs.stack.supervisor import Died, Event, Limits, Ready, Stopped, Supervisor
from tests.integration.jobs.ticking import DEADLINE_S, tick_until

ROOT = Path(__file__).parents[3]
LIMITS = Limits(start_timeout_s=20.0, stop_timeout_s=2.0, restart_backoff_s=0.05, settle_s=0.0)
GATEWAY = (
    "import os, signal, sys, time\n"
    "from schemas.readiness import announce_ready\n"
    "if 'broken' in sys.argv: sys.exit('this version cannot start')\n"
    "if 'deaf' in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "announce_ready(os.environ['WAYSTATION_DATA'], os.environ['WAYSTATION_PART'], {})\n"
    "time.sleep(600)\n"
)
NAMES = ("gateway", "gateway-2")
DISPATCHER = (
    "import contextlib, os, pathlib, signal, sys, time\n"
    "from schemas.readiness import announce_ready\n"
    "if 'broken' in sys.argv: sys.exit('this version cannot start')\n"
    "if 'stuck' in sys.argv: time.sleep(600)\n"
    "here = pathlib.Path(os.environ['WAYSTATION_DATA']) / 'running'\n"
    "if here.exists():\n"
    "    with contextlib.suppress(ProcessLookupError):\n"
    "        os.kill(int(here.read_text()), signal.SIGTERM)\n"
    "    time.sleep(0.3)\n"
    "here.write_text(str(os.getpid()))\n"
    "if 'late' in sys.argv: sys.exit('it has ended what it was to replace')\n"
    "announce_ready(os.environ['WAYSTATION_DATA'], os.environ['WAYSTATION_PART'], {})\n"
    "time.sleep(600)\n"
)
"""Ends the one before by itself, a while before it is ready."""


def gateway_part(data: Path, name: str, *argv: str) -> Part:
    env = {"WAYSTATION_DATA": str(data), "WAYSTATION_PART": name, "PYTHONPATH": str(ROOT)}
    return Part(name, argv, env, lambda: announced(data, name))


def version(*kind: str) -> list[str]:
    return [sys.executable, "-c", GATEWAY, *kind]


def dispatcher_part(data: Path, *argv: str) -> Part:
    return gateway_part(data, "dispatcher", *argv)._replace(takes_over=True)


def dispatcher(*kind: str) -> list[str]:
    return [sys.executable, "-c", DISPATCHER, *kind]


class StackHarness:
    """A supervisor over two gateways, ticked by hand. `kind` is the version that runs at first; that of a request is
    its interpreter."""

    def __init__(self, data: Path, *kind: str) -> None:
        self.data = data
        self.events: list[Event] = []

        def of(name: str) -> Callable[[GatewayRequest], Part]:
            return lambda request: gateway_part(data, name, *request.interpreter)

        self.supervisor = Supervisor(
            data,
            [*(gateway_part(data, name, *version(*kind)) for name in NAMES), dispatcher_part(data, *dispatcher())],
            LIMITS,
            os.environ,
            self.events.append,
            Identity.of(os.getpid()),
            attend=Restarting(
                data,
                {name: of(name) for name in NAMES}
                | {"dispatcher": lambda request: dispatcher_part(data, *request.interpreter)},
            ),
            gateways={"gateway": "gw", "gateway-2": "gw-2"},
        )
        self.tick_until(lambda: self.supervisor.ready)
        self.supervisor.announce()
        self.events.clear()

    def tick_until(self, condition: Callable[[], bool]) -> None:
        tick_until(self.supervisor, condition)

    def ask(self, part: str, interpreter: list[str], timeout_s: float = DEADLINE_S) -> str:
        request = GatewayRequest(
            id=uuid.uuid4().hex, interpreter=interpreter, configuration=[], part=part, timeout_s=timeout_s
        )
        requests.ask(self.data, request)
        return request.id

    def answer(self, request_id: str) -> Answer:
        self.tick_until(lambda: (said := requests.answer_to(self.data, request_id)) is not None and said.over)
        answer = requests.answer_to(self.data, request_id)
        assert answer is not None
        return answer

    def process(self, name: str) -> ProcessState:
        state = read_state(self.data)
        assert state is not None
        (found,) = [process for process in state.processes if process.name == name]
        return found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[StackHarness]:
    made = StackHarness(tmp_path)
    yield made
    made.supervisor.stop()


def test_the_old_process_has_ended_before_the_new_one_starts_and_no_other_is_touched(harness: StackHarness) -> None:
    """R5: both would write the same files."""
    before = {name: harness.process(name) for name in NAMES}
    request = harness.ask("gateway-2", version("new"))
    harness.tick_until(lambda: harness.process("gateway-2").pid != before["gateway-2"].pid)
    assert not psutil.pid_exists(before["gateway-2"].pid)
    answer = harness.answer(request)
    assert (answer.error, answer.lines) == (None, ["gateway-2: restarting", "gateway-2: the new process is ready"])
    now = harness.process("gateway-2")
    assert (now.state, now.restarts) == ("ready", 0)
    assert "new" in psutil.Process(now.pid).cmdline()
    assert harness.process("gateway").pid == before["gateway"].pid
    assert harness.events == [Stopped("gateway-2", True), Ready("gateway-2", harness.events[-1].seconds)]  # type: ignore[union-attr]


def test_the_new_version_is_what_is_started_again(harness: StackHarness) -> None:
    harness.answer(harness.ask("gateway", version("new")))
    pid = harness.process("gateway").pid
    os.kill(pid, signal.SIGKILL)
    harness.tick_until(lambda: harness.process("gateway").pid != pid and harness.process("gateway").state == "ready")
    assert "new" in psutil.Process(harness.process("gateway").pid).cmdline()


@pytest.mark.parametrize(
    ("interpreter", "why"),
    [
        (version("broken"), "the new process ended with status 1; the last line of"),
        (["/nowhere/python"], "the new process cannot run /nowhere/python: No such file or directory"),
    ],
)
def test_a_version_that_cannot_start_gives_way_to_the_earlier_one(
    harness: StackHarness, interpreter: list[str], why: str
) -> None:
    answer = harness.answer(harness.ask("gateway-2", interpreter))
    assert answer.error is not None
    assert answer.error.startswith("gateway-2 was not replaced, and its earlier version runs again: ")
    assert why in answer.error
    harness.tick_until(lambda: harness.process("gateway-2").state == "ready")
    assert harness.answer(harness.ask("gateway-2", version("new"))).error is None, "the next is tried anew"


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    harness = StackHarness(tmp_path, "deaf")
    try:
        assert harness.answer(harness.ask("gateway", version("new"))).error is None
        assert Stopped("gateway", False) in harness.events
    finally:
        os.kill(harness.process("gateway-2").pid, signal.SIGKILL)
        harness.supervisor.stop()


def test_a_part_that_has_just_died_is_restarted_as_the_new_version(harness: StackHarness) -> None:
    os.kill(harness.process("gateway").pid, signal.SIGKILL)
    assert harness.answer(harness.ask("gateway", version("new"))).error is None
    assert "new" in psutil.Process(harness.process("gateway").pid).cmdline()


def test_a_part_that_is_no_gateway_is_refused_with_those_there_are(harness: StackHarness) -> None:
    answer = harness.answer(harness.ask("gateway-3", version()))
    assert answer.error == "this stack has no part gateway-3; its gateways are gateway, gateway-2, dispatcher"


def test_a_dispatcher_ends_by_itself_when_the_new_one_has_its_place(harness: StackHarness) -> None:
    """R1, R5: that it has ended before the new one is ready is no reason to start it again. The new one is the part."""
    before = harness.process("dispatcher")
    answer = harness.answer(harness.ask("dispatcher", dispatcher("new")))
    said = ["dispatcher: a new process takes over from the running one", "dispatcher: the new process is ready"]
    assert (answer.error, answer.lines) == (None, said)
    now = harness.process("dispatcher")
    assert (now.state, now.pid == before.pid) == ("ready", False)
    assert not psutil.pid_exists(before.pid)
    assert not any(isinstance(event, Died) for event in harness.events)
    os.kill(now.pid, signal.SIGKILL)
    harness.tick_until(lambda: (one := harness.process("dispatcher")).pid != now.pid and one.state == "ready")
    assert "new" in psutil.Process(harness.process("dispatcher").pid).cmdline(), "as what it was replaced by"


@pytest.mark.parametrize(
    ("interpreter", "why"),
    [
        (dispatcher("broken"), "the new process ended with status 1; read "),
        (dispatcher("stuck"), "the new process did not catch up within 1 s; read "),
        (["/nowhere/python"], "cannot run /nowhere/python: No such file or directory"),
    ],
)
def test_a_dispatcher_goes_on_if_the_new_one_does_not_start(
    harness: StackHarness, interpreter: list[str], why: str
) -> None:
    before = harness.process("dispatcher")
    answer = harness.answer(harness.ask("dispatcher", interpreter, timeout_s=1.0))
    assert (answer.error or "").startswith(f"dispatcher was not replaced, and its earlier version runs: {why}")
    assert harness.process("dispatcher") == before
    assert harness.answer(harness.ask("dispatcher", dispatcher("new"))).error is None, "the next is tried anew"


def test_if_both_dispatchers_end_the_earlier_version_is_started_again(harness: StackHarness) -> None:
    before = harness.process("dispatcher")
    answer = harness.answer(harness.ask("dispatcher", dispatcher("late")))
    assert "the new process ended with status 1" in (answer.error or "")
    harness.tick_until(lambda: (one := harness.process("dispatcher")).pid != before.pid and one.state == "ready")
    assert "late" not in psutil.Process(harness.process("dispatcher").pid).cmdline()


def test_one_request_at_a_time_and_none_from_before_the_start(harness: StackHarness) -> None:
    harness.ask("gateway", version())
    with pytest.raises(StackError, match="a replacement of gateways is already in progress"):
        harness.ask("gateway-2", version())
    forget(harness.data)
    assert requests.next(harness.data) is None


def test_the_record_of_the_stack_names_its_gateways(harness: StackHarness) -> None:
    state = read_state(harness.data)
    assert state is not None
    assert state.gateways == {"gateway": "gw", "gateway-2": "gw-2"}
