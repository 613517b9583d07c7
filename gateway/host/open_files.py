"""The process's limit of open files (RLIMIT_NOFILE), raised to what its connections need."""

import resource
from typing import NamedTuple

import structlog

log = structlog.get_logger(__name__)


class OpenFiles(NamedTuple):
    """The soft limit to set, and whether it is enough."""

    soft: int
    is_enough: bool


def decide(needed: int, soft: int, hard: int) -> OpenFiles:
    """The soft limit for `needed` open files: never lowered, never above `hard`; -1 is no limit."""
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return OpenFiles(soft, True)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return OpenFiles(needed, True)
    return OpenFiles(hard, False)


def allow_open_files(needed: int, setting: str) -> OpenFiles:
    """Raises the soft limit as far as a process's connections need and the hard limit allows. `setting`: which one
    needs so many, and its value.

    Too low a limit is no error: the process serves as many connections as it can, and the log says how many it cannot.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    decided = decide(needed, soft, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (decided.soft, hard))
    except (ValueError, OSError):  # the system has another limit
        decided = OpenFiles(soft, soft >= needed)
    if not decided.is_enough:
        log.warning(
            f"this process may open {decided.soft} files, but {setting} needs {needed}: raise the hard limit "
            f"(`ulimit -Hn`, LimitNOFILE= of systemd) or lower the setting"
        )
    return decided
