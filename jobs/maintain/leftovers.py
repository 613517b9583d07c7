"""Leftovers outside the tables: checkpoints of earlier generations of queries, bundles of old submissions."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from jobs.maintain.plan import Amount, Step, Stopping
from jobs.maintain.vacuum import is_older
from pipelines.streams import StreamId

CHECKPOINTS = "_checkpoints"
GENERATION = "earlier generation"
SUBMISSION = "submission"
SUBMISSIONS = "submissions"


class Left(NamedTuple):
    """A directory: number and bytes of its files, and when the last one was written."""

    files: int
    bytes: int
    written: datetime


def superseded(checkpoints: Mapping[str, Left], before: datetime) -> list[str]:
    """The checkpoints, by name, of generations that ended: not written since `before`, while a later generation of the
    query was written after them."""
    generations = defaultdict(list)
    for name in checkpoints:
        stream = StreamId.parse(name)
        generations[stream.query].append((stream.generation, name))
    return sorted(
        name
        for known in generations.values()
        for generation, name in known
        if checkpoints[name].written < before
        and any(later > generation and checkpoints[other].written > checkpoints[name].written for later, other in known)
    )


def generation_steps(tables: str, names: Iterable[str], before: datetime) -> list[Step]:
    """What is due among the checkpoints directly under `tables`, and under those of the tables with these names."""
    steps = []
    for parent in [tables, *(f"{tables}/{name}" for name in names)]:
        known = _generations(parent)
        for name in superseded(known, before):
            steps.append(_step(f"{parent}/{CHECKPOINTS}", f"{GENERATION} {name}", known[name], name))
    return steps


def submission_steps(cache: Path, before: datetime) -> list[Step]:
    """Bundles under `cache` that were last used before `before`, and that no process on this machine names."""
    old = sorted(path for path in (cache / SUBMISSIONS).glob("*") if path.is_dir() and is_older(path, before))
    running = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])] if old else []
    return [
        _step(str(cache / SUBMISSIONS), f"{SUBMISSION} {path.name}", _bundle(path), path.name)
        for path in old
        if not any(str(path) in command for command in running)
    ]


def _generations(parent: str) -> dict[str, Left]:
    """The checkpoints under `parent` of queries that have several generations."""
    storage = PyFileSystem(DeltaStorageHandler(parent))
    below = storage.get_file_info(FileSelector(CHECKPOINTS, allow_not_found=True))
    names = [one.base_name for one in below if one.type == FileType.Directory]
    queries = Counter(StreamId.parse(name).query for name in names)
    several = [name for name in names if queries[StreamId.parse(name).query] > 1]
    found = {}
    for name in several:
        inner = storage.get_file_info(FileSelector(f"{CHECKPOINTS}/{name}", recursive=True))
        files = [one for one in inner if one.type == FileType.File]
        if files:
            written = max(one.mtime for one in files).astimezone(UTC)
            found[name] = Left(len(files), sum(one.size for one in files), written)
    return found


def _bundle(path: Path) -> Left:
    files = [one.stat() for one in path.rglob("*") if one.is_file()]
    used = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return Left(len(files), sum(one.st_size for one in files), used)


def _step(parent: str, task: str, left: Left, directory: str) -> Step:
    def perform(_stopping: Stopping) -> None:
        if "://" not in parent:
            shutil.rmtree(Path(parent) / directory)
            return
        storage = PyFileSystem(DeltaStorageHandler(parent))
        for one in storage.get_file_info(FileSelector(directory, recursive=True)):
            if one.type == FileType.File:
                storage.delete_file(one.path)

    return Step(parent, task, Amount(files=left.files, bytes=left.bytes), perform)
