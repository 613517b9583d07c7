"""Processes: identity, stopping, and what is never touched."""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import psutil
import pytest

from jobs.stack.process import (
    IDLE,
    LEAST_PRIORITY,
    Identity,
    Leftover,
    ManagedProcess,
    can_take_priority_back,
    stop_all,
    wait_until,
)
from tests.integration.jobs.stepped_clock import step_wall_clock

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has start ids")

DEADLINE_S = 20.0
SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.fixture
def start(tmp_path):
    started = []

    def start_one(code: str, **environ: str) -> ManagedProcess:
        process = ManagedProcess([sys.executable, "-c", code], {**os.environ, **environ}, tmp_path / "logs" / "p.log")
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        wait_until(process.ended, DEADLINE_S)


def log_line(tmp_path: Path) -> str:
    log = tmp_path / "logs" / "p.log"
    assert wait_until(lambda: log.read_text().endswith("\n"), DEADLINE_S)
    return log.read_text().strip()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_child_is_stopped_and_its_status_known(start):
    process = start(SLEEPER)
    assert not process.ended()
    assert stop_all([process], DEADLINE_S)
    assert process.exit_code == -signal.SIGTERM
    assert not process.identity.alive()


def test_one_that_does_not_listen_is_killed(start, tmp_path):
    process = start(STUBBORN)
    assert log_line(tmp_path) == "deaf"
    assert not stop_all([process], 0.2)
    assert process.exit_code == -signal.SIGKILL


def test_nothing_of_a_killed_childs_group_is_left(start, tmp_path):
    process = start(PARENT)
    grandchild = int(log_line(tmp_path))
    os.kill(process.identity.pid, signal.SIGKILL)
    assert wait_until(process.ended, DEADLINE_S)
    assert wait_until(lambda: gone(grandchild), DEADLINE_S)


def test_giving_way_reaches_all_threads_of_the_group(start, tmp_path):
    process = start(f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()\n{PARENT}")
    everybody = [process.identity.pid, int(log_line(tmp_path))]
    process.set_niceness(7)
    threads = [thread.id for pid in everybody for thread in psutil.Process(pid).threads()]
    assert len(threads) > len(everybody)
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {7}
    process.kill()
    assert wait_until(process.ended, DEADLINE_S)
    process.set_niceness(7)  # nobody is left


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
@pytest.mark.skipif(not can_take_priority_back(), reason="this system lets nobody take priority back (RLIMIT_NICE)")
def test_who_gives_way_altogether_gets_its_priority_back_with_all_threads(start, tmp_path):
    process = start(f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()\n{PARENT}")
    everybody = [process.identity.pid, int(log_line(tmp_path))]
    threads = [thread.id for pid in everybody for thread in psutil.Process(pid).threads()]
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    for niceness, policy, nice in ((IDLE, os.SCHED_IDLE, LEAST_PRIORITY), (0, os.SCHED_OTHER, ours)):
        process.set_niceness(niceness)
        assert {os.sched_getscheduler(thread) for thread in threads} == {policy}
        assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {nice}


def test_output_goes_to_the_log(start, tmp_path):
    process = start("print('out'); import sys; print('err', file=sys.stderr)")
    assert wait_until(process.ended, DEADLINE_S)
    assert process.exit_code == 0
    assert set((tmp_path / "logs" / "p.log").read_text().split()) == {"out", "err"}


def earlier(identity: Identity) -> Identity:
    """A process that had the pid before."""
    start_id = f"{identity.start_id}0" if identity.start_id else ""
    return identity._replace(create_time=identity.create_time - 100, start_id=start_id)


def test_identity_is_pid_and_start(start):
    identity = start(SLEEPER).identity
    assert identity.alive()
    assert Identity.of(identity.pid).alive()
    assert not earlier(identity).alive()


def test_an_identity_recorded_without_a_start_id_is_pid_and_create_time(start):
    """As an earlier version recorded it, and as on other systems than Linux."""
    identity = start(SLEEPER).identity._replace(start_id="")
    assert identity.alive()
    assert not earlier(identity).alive()


@pytest.mark.parametrize("step_s", [-3600.0, 2.0, 3600.0])
def test_a_step_of_the_wall_clock_ends_no_child(start, monkeypatch, step_s):
    process = start(SLEEPER)
    step_wall_clock(monkeypatch, step_s)
    assert not process.ended()
    process.kill()
    assert wait_until(process.ended, DEADLINE_S)
    assert process.exit_code == -signal.SIGKILL


@only_linux
@pytest.mark.parametrize("step_s", [-3600.0, 2.0, 3600.0])
def test_an_identity_holds_over_a_step_of_the_wall_clock(start, monkeypatch, step_s):
    identity = start(SLEEPER).identity
    step_wall_clock(monkeypatch, step_s)
    assert identity.alive()
    assert not earlier(identity).alive()


@only_linux
def test_a_program_may_have_any_name(tmp_path):
    """`/proc/<pid>/stat` has the name in brackets, unescaped."""
    odd = tmp_path / "a ) (R 1"
    odd.symlink_to("/bin/sleep")
    process = ManagedProcess([str(odd), "600"], os.environ, tmp_path / "logs" / "p.log")
    try:
        assert wait_until(lambda: psutil.Process(process.identity.pid).name() == odd.name, DEADLINE_S)
        assert Identity.of(process.identity.pid).start_id == process.identity.start_id
    finally:
        process.kill()
        assert wait_until(process.ended, DEADLINE_S)


def test_a_recycled_pid_is_never_touched(start):
    process = start(SLEEPER, WAYSTATION_PART="other")
    recycled = Leftover(earlier(process.identity), {"WAYSTATION_PART": "p"})
    assert recycled.ended()
    assert stop_all([recycled], 1.0)
    assert process.identity.alive()


def test_a_leftover_is_stopped_with_what_it_started(start, tmp_path):
    process = start(PARENT, WAYSTATION_PART="p")
    grandchild = int(log_line(tmp_path))
    leftover = Leftover(process.identity, {"WAYSTATION_PART": "p"})
    assert not stop_all([leftover], 0.5), "nobody asked the grandchild, so it had to be killed"
    assert leftover.ended()
    assert gone(process.identity.pid)
    assert gone(grandchild)


def test_what_an_ended_leftover_started_is_stopped_only_with_our_marks(tmp_path):
    """Its leader is dead and reaped, its number might be anybody's."""
    environ = {**os.environ, "WAYSTATION_PART": "p"}
    leader = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    with leader.stdout:
        grandchild = int(leader.stdout.readline())
        identity = Identity.of(leader.pid)
        leader.kill()
        leader.wait()
    try:
        foreign = Leftover(identity, {"WAYSTATION_PART": "another"})
        assert foreign.ended()
        stop_all([foreign], 0.5)
        assert not gone(grandchild)
        ours = Leftover(identity, {"WAYSTATION_PART": "p"})
        assert not ours.ended()
        stop_all([ours], DEADLINE_S)
    finally:
        assert wait_until(lambda: gone(grandchild), DEADLINE_S) or os.kill(grandchild, signal.SIGKILL)


def test_a_leftover_whose_program_is_still_being_loaded_is_known(start, tmp_path, monkeypatch):
    """Amid `execve` a process has no environment for some ms: a JVM that was just being started would stay."""
    process = start(PARENT, WAYSTATION_PART="p")
    grandchild, identity = int(log_line(tmp_path)), process.identity
    ours = Leftover(identity, {"WAYSTATION_PART": "p"})
    looks, environ_of = count(), psutil.Process.environ
    monkeypatch.setattr(psutil.Process, "environ", lambda self: environ_of(self) if next(looks) > 1 else {})
    os.kill(identity.pid, signal.SIGKILL)
    assert wait_until(lambda: not identity.alive(), DEADLINE_S)
    assert not ours.ended()
    assert not gone(grandchild)
    stop_all([ours], DEADLINE_S)
    assert wait_until(lambda: gone(grandchild), DEADLINE_S)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root of Linux has capabilities to drop")
def test_root_without_the_capability_knows_that_it_cannot_take_priority_back() -> None:
    """As in a container, of which root may not do all that root may: the supervisor would fail when it tried."""
    asked = "from jobs.stack.process import can_take_priority_back as can; print(can())"
    command = ["setpriv", "--bounding-set=-sys_nice", "--", sys.executable, "-c", asked]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert said.stdout.strip() == "False"
