"""Versions of the records of a spool's changelog (:mod:`gateway.shard.spool_records`). Pure.

Every value is a msgpack array or map that says its version: an array as its first number, a map under `version`. That
holds for all releases, so each can tell what a later one has written from what is malformed.
"""

import msgspec

from schemas.errors import NewerVersion

_SHOWN = 80


def version_in(value: bytes) -> int:
    """The version that a value says it has; 0 if it says none."""
    try:
        found = msgspec.msgpack.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    if isinstance(found, dict):
        version = found.get("version", 0)
    else:
        said = found[:2] if isinstance(found, list) else []
        version = next((one for one in said if isinstance(one, int)), 0)
    return version if isinstance(version, int) and not isinstance(version, bool) else 0


def check_version(key: bytes, version: int, highest: int) -> None:
    """Raises NewerVersion if it is above the `highest` that this release reads."""
    if version > highest:
        raise NewerVersion(f"spool record {key[:_SHOWN]!r} has the unknown version {version}")
