"""`waystation submit` keeps drivers on this machine until all have ended."""

import os
import sys
from pathlib import Path
from subprocess import run
from threading import Event

import pytest

from jobs.cluster import drivers
from jobs.cluster.bundle import make_bundle
from jobs.cluster.submission import Submission
from jobs.errors import SubmissionError
from tests.waiting import wait_for

BASE = Path(__file__).parents[3] / "conf" / "base.toml"


def shell(name: str, script: str) -> Submission:
    return Submission(name, ("/bin/sh", "-c", script), {})


def test_drivers_here_are_kept_until_all_have_ended() -> None:
    """One that fails ends no other; its status is told at the end."""
    said: list[str] = []
    with pytest.raises(SubmissionError, match="router-active with status 3"):
        drivers.run([shell("router-active", "exit 3"), shell("router-backup", "sleep 0.5")], Event(), 5, said.append)
    assert "router-backup: ended with status 0" in said


def test_an_application_of_the_cluster_goes_on_when_it_is_watched_no_more() -> None:
    """SIGTERM ends spark-submit alone, which is no failure; how the application is ended is said."""
    stopped, said = Event(), list[str]()
    stopped.set()
    watched = Submission("ledger", ("/bin/sleep", "60"), {}, "kubectl delete pod ledger")
    drivers.run([watched], stopped, 30, said.append)
    assert said[-1] == (
        "ledger: no longer watched; if the cluster has started it, it keeps running; to stop it: "
        "kubectl delete pod ledger"
    )
    failed = Submission("ledger", ("/bin/false",), {}, "kubectl delete pod ledger")
    with pytest.raises(SubmissionError, match="ledger with status 1"):
        drivers.run([failed], Event(), 30, said.append)


def test_drivers_here_end_when_asked_to(tmp_path: Path) -> None:
    """The application gets SIGTERM and its time; spark-submit, its parent, does not."""
    launch = tmp_path / "launch.py"
    launch.write_text(
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\nprint(1, flush=True)\ntime.sleep(60)\n"
    )
    ready = tmp_path / "ready"
    script = f"trap 'exit 9' TERM; {sys.executable} {launch} > {ready}; exit $?"
    stopped = Event()

    def report(line: str) -> None:
        wait_for(lambda: ready.exists() and bool(ready.read_text()), "the application runs")
        stopped.set()

    drivers.run([shell("ledger", script)], stopped, 30, report)


def test_a_bundle_runs_from_itself(tmp_path: Path) -> None:
    """The packages import from the wheel, with no other Waystation on the path; the launcher runs a module of it."""
    bundle = make_bundle([BASE], tmp_path)
    environ = os.environ | {"PYTHONPATH": str(bundle.packages)}
    command = [sys.executable, str(bundle.launcher), "schemas.settings"]
    assert run(command, env=environ, cwd=tmp_path, check=True, timeout=60).returncode == 0
    where = "import jobs.cluster, sys; sys.exit(not jobs.cluster.__file__.startswith(sys.argv[1]))"
    assert (
        run([sys.executable, "-c", where, str(bundle.packages)], env=environ, cwd=tmp_path, timeout=60).returncode == 0
    )
