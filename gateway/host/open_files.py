"""The process's limit of open files (RLIMIT_NOFILE), raised to what its connections need."""

import resource
from typing import NamedTuple

import structlog

from schemas.settings import GatewayLimits

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


def allow_open_files(limits: GatewayLimits) -> OpenFiles:
    """Raises the soft limit as far as the gateway's connections need and the hard limit allows.

    Too low a limit is no error: the gateway serves as many connections as it can, and the log says how many it cannot.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    decided = decide(limits.open_files, soft, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (decided.soft, hard))
    except (ValueError, OSError):  # the system has another limit
        decided = OpenFiles(soft, soft >= limits.open_files)
    if not decided.is_enough:
        log.warning(
            f"this process may open {decided.soft} files, but gateway.limits.connections = {limits.connections} needs "
            f"{limits.open_files}: raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd) or lower the setting"
        )
    return decided
