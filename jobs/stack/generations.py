"""Which generation of each router's checkpoint counts: `<data>/generations.json`, and what is left of earlier ones.

A generation begins where the one before it is (:mod:`jobs.router.ingress_topic`), so that the latest
two are kept: the one that runs, and the one that it may still have to begin from.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.streams import StreamId
from schemas.readiness import read_json, write_json

FILE = "generations.json"


def generation_of(data: Path, roles: Iterable[str]) -> int:
    """The generation with which a process runs these roles: the highest of them."""
    recorded = _recorded(data)
    return max(recorded.get(role) or max(_existing(data, role), default=1) for role in roles)


def next_generation(data: Path, roles: Iterable[str]) -> int:
    """One that none of the roles has ever had a checkpoint of."""
    roles = list(roles)
    return 1 + max([generation_of(data, roles), *(number for role in roles for number in _existing(data, role))])


def record(data: Path, roles: Iterable[str], generation: int) -> None:
    """From now on the roles run with this generation, after any restart too."""
    write_json(data / FILE, {**_recorded(data), **dict.fromkeys(roles, generation)})


def prune(data: Path, roles: Iterable[str]) -> None:
    """Remove the checkpoints of the roles that nothing can begin from any more: those before the last but one, and
    those of a replacement that came to nothing. None of them may be in use."""
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
    """A role's query and its relief; one generation for both."""
    return f"router-{role}", f"router-{role}-relief"
