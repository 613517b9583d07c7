"""A full disk under the data directory ends no supervisor; what could not be written is written once there is space."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.stack.broker import cluster_id
from jobs.stack.events import Died, Event, NotWritten, Replaced, WrittenAgain
from jobs.stack.generations import generation_of, record
from jobs.stack.log_rotation import Limits as LogLimits
from jobs.stack.log_rotation import rotate
from jobs.stack.part import Part
from jobs.stack.parts import broker_spec, choose_addresses
from jobs.stack.process import Identity
from jobs.stack.replacing import Replacing, Request, RouterPart, answer_to, ask
from jobs.stack.state import StackState, read_state
from jobs.stack.supervisor import Limits, Supervisor
from schemas.settings import process_settings
from tests.disk import SmallDisk, needs_small_disk, small
from tests.integration.jobs.ticking import DEADLINE_S, tick_until

pytestmark = needs_small_disk

SIZE = 1 << 20
SETTINGS = process_settings({})
LIMITS = Limits(start_timeout_s=20.0, stop_timeout_s=5.0, restart_backoff_s=0.05, settle_s=0.0)
SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small(tmp_path, SIZE) as disk:
        yield disk


class Harness:
    """A supervisor over one part that is ready at once, ticked by hand."""

    def __init__(self, data: Path, limits: Limits = LIMITS, attend: Callable[[Supervisor], None] = lambda _: None):
        self.data = data
        self.events: list[Event] = []
        me = Identity.of(os.getpid())
        parts = [Part("router", SLEEPER, {}, dict)]
        self.supervisor = Supervisor(data, parts, limits, os.environ, self.events.append, me, attend=attend)
        self.tick_until(lambda: self.supervisor.ready)
        self.supervisor.announce()

    def tick_until(self, condition: Callable[[], bool]) -> None:
        tick_until(self.supervisor, condition)

    def has(self, *kinds: type[Event]) -> bool:
        return set(kinds) <= {type(event) for event in self.events}

    def faults(self) -> list[tuple[type[Event], str]]:
        return [(type(event), event.file) for event in self.events if isinstance(event, NotWritten | WrittenAgain)]

    def state(self) -> StackState:
        state = read_state(self.data)
        assert state is not None
        return state

    @property
    def pid(self) -> int:
        return self.supervisor.state().processes[0].pid


def test_a_part_that_dies_meanwhile_is_restarted_and_recorded_later(disk: SmallDisk) -> None:
    harness = Harness(disk.directory)
    try:
        before = harness.pid
        disk.fill()
        os.kill(before, signal.SIGKILL)
        harness.tick_until(lambda: harness.supervisor.state().processes[0].restarts == 1 and harness.has(Died))
        assert harness.state().processes[0].pid == before
        assert harness.faults() == [(NotWritten, "stack.json")]
        disk.free()
        harness.tick_until(lambda: harness.state().processes[0].pid == harness.pid)
        assert harness.faults() == [(NotWritten, "stack.json"), (WrittenAgain, "stack.json")]
    finally:
        harness.supervisor.stop()


def test_a_replacement_meanwhile_is_recorded_and_answered_later(disk: SmallDisk) -> None:
    """R5: the part must not start again with the checkpoint of its former generation, and the command gets its end."""
    data = disk.directory
    record(data, ["active"], 1)
    is_caught_up = data / "ready" / "router.alongside.json"

    def new(request: Request, generation: int) -> Part:
        return Part("router", SLEEPER, {}, dict)

    harness = Harness(data, attend=Replacing(data, [RouterPart("router", ["active"], new)]))
    try:
        before = harness.pid
        ask(data, Request(id="1", roles=["active"], interpreter=[], configuration=[], timeout_s=DEADLINE_S))
        harness.tick_until(lambda: answer_to(data, "1") is not None)
        is_caught_up.parent.mkdir(exist_ok=True)
        is_caught_up.write_text("{}")
        disk.fill()
        harness.tick_until(lambda: harness.has(Replaced))
        harness.supervisor.tick()
        assert (harness.pid != before, generation_of(data, ["active"])) == (True, 1)
        disk.free()
        harness.tick_until(lambda: (answer := answer_to(data, "1")) is not None and answer.over)
        assert generation_of(data, ["active"]) == 2
        answer = answer_to(data, "1")
        assert answer is not None
        assert (answer.error, answer.lines[-1]) == (None, "router: replaced")
        names = {"stack.json", "answers to commands"}
        harness.tick_until(lambda: {file for kind, file in harness.faults() if kind is WrittenAgain} == names)
        assert sorted(file for kind, file in harness.faults() if kind is NotWritten) == sorted(names)
    finally:
        harness.supervisor.stop()


def test_a_log_that_cannot_be_rotated_stays_and_is_rotated_later(disk: SmallDisk) -> None:
    harness = Harness(disk.directory, LIMITS._replace(logs=LogLimits(bytes=8192, files=2)))
    log = disk.directory / "logs" / "router.log"
    try:
        with log.open("ab") as file:
            file.write(b"a line\n" * 10_000)
        disk.fill()
        harness.tick_until(lambda: harness.has(NotWritten))
        assert log.stat().st_size == 70_000
        disk.free()
        harness.tick_until(lambda: harness.has(WrittenAgain))
        assert log.stat().st_size <= 4_096
        assert harness.faults() == [(NotWritten, "router.log.1"), (WrittenAgain, "router.log.1")]
    finally:
        harness.supervisor.stop()


def test_older_files_stay_when_a_log_cannot_be_rotated(disk: SmallDisk) -> None:
    log, limits = disk.directory / "part.log", LogLimits(bytes=8192, files=2)
    log.with_name("part.log.1").write_text("older")
    log.write_bytes(b"a line\n" * 10_000)
    disk.fill()
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            rotate(log, limits)
    left = {file.name for file in disk.directory.iterdir()} - {"filler"}
    assert (left, log.stat().st_size) == ({"part.log", "part.log.1"}, 70_000)
    assert log.with_name("part.log.1").read_text() == "older"


def test_the_oldest_file_of_a_log_makes_the_space_for_its_rotation(disk: SmallDisk) -> None:
    log, limits = disk.directory / "part.log", LogLimits(bytes=8192, files=2)
    for name in ("part.log.2", "part.log.1", "part.log"):
        log.with_name(name).write_bytes(f"{name}\n".encode() * 7_000)
    disk.fill()
    assert rotate(log, limits)
    assert log.stat().st_size <= 4_096
    assert log.with_name("part.log.1").read_text().startswith("part.log\n")
    assert log.with_name("part.log.2").read_text().startswith("part.log.1\n")


def test_a_first_start_on_a_full_disk_does_not_spoil_the_next(disk: SmallDisk) -> None:
    """The broker's storage can only be formatted with a cluster id, and then keeps it."""
    spec = broker_spec(SETTINGS, disk.directory, choose_addresses(SETTINGS, disk.directory, free_ports=True))
    spec.directory.mkdir()
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        cluster_id(spec)
    disk.free()
    assert len(made := cluster_id(spec)) == 22
    assert cluster_id(spec) == made


TALK = """
import sys
from jobs.cli.stack import console_of
from jobs.stack.events import Died

console = console_of(None)
for number in range(3):
    sys.stdin.readline()
    console.event(Died("router", f"death {number}", 1.0))
    sys.stderr.write("said\\n")
"""


def test_what_up_says_on_a_full_disk_comes_later_and_once(disk: SmallDisk) -> None:
    log = disk.directory / "up.log"
    log.write_bytes(b"x" * 4096)
    with log.open("ab") as output:
        talking = subprocess.Popen(
            [sys.executable, "-c", TALK],
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
    with talking:
        assert talking.stdin is not None
        assert talking.stderr is not None
        for number in range(3):
            if number == 0:
                disk.fill()
            if number == 2:
                disk.free()
            talking.stdin.write("\n")
            talking.stdin.flush()
            assert talking.stderr.readline() == "said\n"
    assert talking.returncode == 0
    assert [line.split(";")[0].split()[-2:] for line in log.read_text()[4096:].splitlines()] == [
        ["death", "0"],
        ["death", "1"],
        ["death", "2"],
    ]
