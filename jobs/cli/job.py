"""Runs a job for a command in a process of its own: the job's output is the command's, its log goes to a file."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from jobs.errors import JobError, StackError
from jobs.output import BROKEN_PIPE
from jobs.stack.state import written


def run_job(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, error: type[JobError]
) -> None:
    """Run a module; `log` is in `logs` of the data directory. Its exit status: 0 is success; 1 becomes the
    command's (`typer.Exit`), and so does `BROKEN_PIPE`; that of `error` means that the job could not do its work, for
    the reason in the last line of its `log`.

    Raises `error` with that line, or with the status if it is any other, or if the log cannot be written.
    """
    try:
        opened = written(log.parents[1], log)
    except StackError as refused:
        raise error(str(refused)) from refused
    with opened as stderr:
        status = subprocess.run([sys.executable, "-m", module, *arguments], env=environment, stderr=stderr).returncode
    lines = log.read_text(errors="replace").strip().splitlines()
    if status == error.exit_status and lines:
        raise error(lines[-1])
    if status not in (0, 1, BROKEN_PIPE):
        raise error(f"{module} ended with status {status}: read {log}")
    if status:
        raise typer.Exit(status)
