"""Opens the files of shards where gateways share them: a damaged one is set aside and made again (Q7).

The file of a shard is a view of the topic `spool`, so nothing is lost with it. But a gateway that cannot open it cannot
serve the shard. So a file whose content SQLite refuses, or that is a directory, is renamed to `….damaged`, for somebody
to look at. The shard begins with an empty file, which reads the topic from its beginning. The one that was set aside
before is removed: a disk that damages files again and again does not fill up.

Other causes are left to people: a new file would fail on a full disk or without permission too, and a file that another
process has open belongs to that.
"""

import os
import shutil
from collections import Counter
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gateway.errors import GatewayError, SpoolDamaged, SpoolError
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_spool import SpoolThread, open_spool

_PARTS: Final = ("", "-wal", "-shm")

log = structlog.get_logger(__name__)


class OpenedFiles(NamedTuple):
    """Of shards that are to start, by number: their spools, what standbys have kept of their session logs, and why a
    file could not be opened."""

    files: dict[int, SpoolThread]
    warm: dict[int, SessionValues]
    failed: dict[int, GatewayError]


class SpoolFiles:
    """Those in `directory`; `counts` has `spools_set_aside`."""

    def __init__(self, directory: Path, executor: Executor, counts: Counter[str]) -> None:
        self._directory = directory
        self._executor = executor
        self._counts = counts

    def open(self, shard: int) -> SpoolThread:
        """On any thread; it may take long. Raises SpoolError."""
        try:
            return open_spool(self._directory, shard, self._executor)
        except SpoolDamaged as error:
            log.error("a damaged spool is set aside and made again from Kafka", shard=shard, reason=str(error))
        try:
            set_aside(self._directory / f"{shard}.sqlite")
        except OSError as error:
            raise SpoolError(f"cannot set aside the damaged spool of shard {shard}: {error}") from error
        self._counts["spools_set_aside"] += 1
        return open_spool(self._directory, shard, self._executor)


def set_aside(path: Path) -> None:
    """Renames a file with what SQLite keeps beside it. Raises OSError."""
    for part in _PARTS:
        present, aside = path.with_name(f"{path.name}{part}"), path.with_name(f"{path.name}.damaged{part}")
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)
        if os.path.lexists(present):
            present.rename(aside)
