"""Versions of the records of a spool's changelog (:mod:`gateway.shard.spool_records`). Pure.

Every value is a msgpack array or map that says its version: an array as its first number, a map under `version`. That
holds for all releases, so each can tell what a later one has written from what is malformed.
"""

import msgspec

from schemas.errors import NewerVersion, RecordError
from schemas.undecodable import UNDECODABLE

_SHOWN = 80
"""Bytes of a key that an error shows."""


def version_in(value: bytes) -> int:
    """The version that a value says it has; 0 if it says none."""
    try:
        found = msgspec.msgpack.decode(value)
    except UNDECODABLE:
        return 0
    if isinstance(found, dict):
        version = found.get("version", 0)
    else:
        said = found[:2] if isinstance(found, list) else []
        version = next((one for one in said if isinstance(one, int)), 0)
    return version if isinstance(version, int) and not isinstance(version, bool) else 0


def check_version(key: bytes, version: int, present: int) -> None:
    """Raises NewerVersion if it is above the `present` one, which this release reads, RecordError if it is another."""
    if version != present:
        text = about(key, f"has the unknown version {version}")
        raise NewerVersion(text) if version > present else RecordError(text)


def malformed(key: bytes, value: bytes, present: int, error: Exception) -> RecordError:
    """What to raise for a value that cannot be decoded; NewerVersion if it may be right in a later release."""
    version = version_in(value)
    if version > present:
        return NewerVersion(about(key, f"has the unknown version {version}"))
    return RecordError(about(key, f"is malformed: {error}"))


def about(key: bytes, problem: str) -> str:
    """The sentence that says what is wrong with a record."""
    return f"spool record {key[:_SHOWN]!r} {problem}"
