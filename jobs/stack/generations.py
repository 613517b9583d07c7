"""The current generation of each router's checkpoint, in `<data>/generations.json`, and removal of earlier ones.

A generation starts from the position of the previous one (:mod:`jobs.router.ingress_topic`), so the latest two are
kept: the one that runs, and the one that it may still have to start from.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.streams import STANDBY, StreamId
from schemas.readiness import read_json, write_json

FILE = "generations.json"


def generation_of(data: Path, roles: Iterable[str]) -> int:
    """The generation that a process of these roles runs with: the highest of them."""
    recorded = _recorded(data)
    return max(recorded.get(role) or max(_existing(data, role), default=1) for role in roles)


def next_generation(data: Path, roles: Iterable[str]) -> int:
    """A generation for which none of the roles has ever had a checkpoint."""
    roles = list(roles)
    return 1 + max([generation_of(data, roles), *(number for role in roles for number in _existing(data, role))])


def record(data: Path, roles: Iterable[str], generation: int) -> None:
    """Makes the roles run with this generation from now on, also after restarts."""
    write_json(data / FILE, {**_recorded(data), **dict.fromkeys(roles, generation)})


def prune(data: Path, roles: Iterable[str]) -> None:
    """Remove the checkpoints of the roles that nothing can start from any more: all older than the previous generation,
    and those of failed replacements. None of them may be in use."""
    for role in roles:
        current, existing = generation_of(data, [role]), _existing(data, role)
        kept = {current, max((number for number in existing if number < current), default=current)}
        for number in existing - kept:
            for query in _queries(role):
                shutil.rmtree(_checkpoints(data) / StreamId(query, number).name, ignore_errors=True)


def _recorded(data: Path) -> Mapping[str, int]:
    return read_json(data / FILE) or {}


def _existing(data: Path, role: str) -> set[int]:
    streams = (StreamId.parse(path.name) for path in _checkpoints(data).glob("router-*"))
    return {stream.generation for stream in streams if stream.query in _queries(role)}


def _checkpoints(data: Path) -> Path:
    return Path(StreamId("any").checkpoint(f"{data}/tables")).parent


def _queries(role: str) -> tuple[str, str]:
    """A role's query and its standby query; both have the same generation."""
    return f"router-{role}", f"router-{role}{STANDBY}"
