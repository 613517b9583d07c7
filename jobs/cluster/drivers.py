"""Drivers on this machine: run until they end, or are asked to end in order. Those on the cluster are watched.

In client mode `spark-submit` is a JVM whose child is the application. A signal to that JVM would end Spark before the
application, so the application is asked to stop; `spark-submit` ends after it.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event

import psutil

from jobs.cluster.submission import Submission
from jobs.errors import SubmissionError

WATCH_S = 0.2

Report = Callable[[str], None]


def run(submissions: Sequence[Submission], stopped: Event, stop_timeout_s: float, report: Report) -> None:
    """Run them in parallel until all have ended. Once `stopped` is set, ask those still running to end, and kill them
    after `stop_timeout_s`. One that ends does not end the others.

    If the driver is on the cluster, only `spark-submit`, which waits for it, is ended.

    Raises SubmissionError if one ended with another status than 0, or had to be killed.
    """
    running = {each.name: _start(each) for each in submissions}
    for name, process in running.items():
        report(f"{name}: started spark-submit (pid {process.pid})")
    statuses: dict[str, int] = {}
    while len(statuses) < len(running) and not stopped.wait(WATCH_S):
        for name, process in running.items():
            if name not in statuses and (status := process.poll()) is not None:
                statuses[name] = status
                report(f"{name}: ended with status {status}")
    for process in running.values():
        ask_to_stop(process)
    ended_by = {each.name: each.ended_by for each in submissions}
    for name, process in running.items():
        still_ran = name not in statuses
        try:
            statuses[name] = process.wait(stop_timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            statuses[name] = process.wait()
        if still_ran and ended_by[name]:
            statuses[name] = 0
            report(
                f"{name}: no longer watched; if the cluster has started it, it keeps running; to stop it: "
                f"{ended_by[name]}"
            )
    if failed := {name: status for name, status in statuses.items() if status}:
        what = ", ".join(f"{name} with status {status}" for name, status in failed.items())
        raise SubmissionError(f"failed: {what}; read its output above")


def _start(submission: Submission) -> "subprocess.Popen[bytes]":
    """Uses a process group of its own, so that Ctrl-C is not delivered to it directly."""
    try:
        return subprocess.Popen(
            submission.argv, env=os.environ | submission.environment, stdin=subprocess.DEVNULL, process_group=0
        )
    except OSError as error:
        raise SubmissionError(f"cannot start {submission.argv[0]}: {error.strerror}") from error


def ask_to_stop(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to the application, or to `spark-submit` while that has not started one."""
    if process.poll() is not None:
        return
    for asked in _applications(process.pid) or [process]:
        with suppress(psutil.NoSuchProcess):
            asked.send_signal(signal.SIGTERM)


def _applications(submit: int) -> list[psutil.Process]:
    """The drivers that `spark-submit` has started. Short-lived helpers of Hadoop's file system appear among its
    children: one that ends while it is examined is skipped."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(submit).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "launch.py" in " ".join(child.cmdline()):
                    found.append(child)
    return found


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills the whole group, before its leader is reaped: until then its number cannot be reused."""
    os.killpg(process.pid, signal.SIGKILL)
