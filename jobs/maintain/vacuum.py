"""VACUUM: deletes files that no version of a table needs any more, and remains of batches that did not commit.

deltalake finds unneeded files: those that a commit replaced longer ago than the table's
`delta.deletedFileRetentionDuration`, and those that no commit names, if they are older than `maintain.vacuum_hours`.
This module also deletes what it does not find: unfinished files of tasks (`_temporary`, `__magic…`) in the directory of
a batch, and on a disk the directories that are empty afterwards. A batch has its own directory, so nobody writes to an
old one any more.
"""

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, FileType, PyFileSystem

from jobs.maintain.plan import Amount, Step, Stopping

VACUUM = "vacuum"
OF_BATCH = re.compile(r"\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")
"""The directory of a batch's files (:meth:`pipelines.storage.table_files.TableFiles.write`)."""


def vacuum_steps(uri: str, name: str, hours: int, now: datetime) -> list[Step]:
    """What is due for the table at `uri`; `now` in UTC."""
    table, before = DeltaTable(uri), now - timedelta(hours=hours)
    place = table.table_uri.rstrip("/")
    there = {file.path: file for file in listed(place)}
    # deltalake keeps listing replaced files, even after they have been deleted.
    unneeded = {relative(place, path) for path in table.vacuum(hours, dry_run=True, full=True)} & there.keys()
    unfinished = left_by_tasks(there.values(), before) - unneeded
    directories = empty_directories(place, before)
    if not (unneeded or unfinished or directories):
        return []

    def perform(_stopping: Stopping) -> None:
        if unneeded:
            table.vacuum(hours, dry_run=False, full=True)
        storage = PyFileSystem(DeltaStorageHandler(place))
        for path in unfinished:
            storage.delete_file(path)
        _remove_directories(place, {*map(os.path.dirname, unneeded | unfinished), *directories})

    files = unneeded | unfinished
    return [Step(name, VACUUM, Amount(files=len(files), bytes=sum(there[path].size or 0 for path in files)), perform)]


def listed(place: str) -> list[FileInfo]:
    """All files of a table, including checkpoints and log; paths relative to its directory."""
    storage = PyFileSystem(DeltaStorageHandler(place))
    return [one for one in storage.get_file_info(FileSelector("", recursive=True)) if one.type == FileType.File]


def relative(place: str, path: str) -> str:
    """A path in the form of `listed`; deltalake also names files by their whole paths."""
    directory = urlsplit(place).path.strip("/")
    return unquote(path.partition(f"{directory}/")[2] or path)


def left_by_tasks(files: Iterable[FileInfo], before: datetime) -> set[str]:
    """Files in directories of batches that only a running task would know, and that are older than `before`."""
    return {file.path for file in files if _is_of_task(file.path) and file.mtime.astimezone(UTC) < before}


def _is_of_task(path: str) -> bool:
    return OF_BATCH.match(path) is not None and any(part.startswith("_") for part in path.split("/")[1:])


def empty_directories(place: str, before: datetime) -> set[str]:
    """On a disk: directories of batches, and below them, that are empty and older than `before`; relative to
    `place`."""
    root = _local(place)
    if root is None:
        return set()
    empty = (Path(directory) for directory, inner, files in os.walk(root) if not inner and not files)
    named = {str(directory.relative_to(root)): directory for directory in empty}
    return {name for name, directory in named.items() if OF_BATCH.match(f"{name}/") and is_older(directory, before)}


def is_older(directory: Path, before: datetime) -> bool:
    """Whether it exists and was last written before `before`: one in use may be renamed or removed at any moment."""
    try:
        return directory.stat().st_mtime < before.timestamp()
    except FileNotFoundError:
        return False


def _remove_directories(place: str, directories: Iterable[str]) -> None:
    """On a disk: removes the directories of batches that are empty, and parents that become empty."""
    root = _local(place)
    if root is None:
        return
    for directory in directories:
        while directory and OF_BATCH.match(f"{directory}/"):
            try:
                (root / directory).rmdir()
            except OSError:  # not empty, or already gone
                break
            directory = os.path.dirname(directory)


def _local(place: str) -> Path | None:
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
