"""Fences on `sessions` and `spool`: who has begun which epoch of a shard (G6; :mod:`gateway.cluster.fencing`).

Each epoch of a shard's home begins with a fence on the shard's partition of both topics:

| key             | value                     | no value (tombstone)                                  |
|-----------------|---------------------------|-------------------------------------------------------|
| `fence/<epoch>` | :class:`Fence`            | everything in front of a later fence is mended        |

The epoch stands in the key, so that compaction keeps the fence of each epoch until a tombstone removes it. No key of a
session has this form, since these have a NUL, and no key of a spool.

A fence of a later version counts as a fence of its epoch, by an unknown gateway: key and header never change their
meaning, so whoever has lost a shard learns it from any later release.

All records of both topics have the epoch of their writer in the header `epoch`, tombstones too. Records without it are
of epoch 0: homes write them that share their shards with nobody.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.envelope import Headers
from schemas.errors import RecordError
from schemas.leases import HIGHEST_EPOCH, Claimant
from schemas.members import LONGEST_NAME
from schemas.undecodable import UNDECODABLE

EPOCH_HEADER: Final = "epoch"
FENCE_PREFIX: Final = b"fence/"
VERSION: Final = 1

_NUMBER = re.compile(rb"[1-9][0-9]{0,15}")
_LARGEST = 4_096
_SHOWN = 80


class Fence(msgspec.Struct, frozen=True):
    """Who begins the epoch of the key."""

    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    boot: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    v: int = VERSION


class _Later(msgspec.Struct, frozen=True):
    """What is read of a fence of a later version."""

    v: int = 0


UNKNOWN: Final = Claimant("", 0)
"""Who has written a fence of a later version; no gateway has this name."""

_decoder = msgspec.json.Decoder(Fence)
_later = msgspec.json.Decoder(_Later)


def fence_key(epoch: int) -> bytes:
    return FENCE_PREFIX + b"%d" % epoch


def encode_fence(claimant: Claimant) -> bytes:
    return msgspec.json.encode(Fence(claimant.name, claimant.boot))


def decode_fence(key: bytes, value: bytes | None) -> tuple[int, Claimant | None]:
    """The epoch, and who begins it; None for a tombstone. Raises RecordError for a record that is not valid."""
    epoch = _number(key.removeprefix(FENCE_PREFIX)) if key.startswith(FENCE_PREFIX) else 0
    if not epoch:
        raise RecordError(f"the key {key[:_SHOWN]!r} is not one of a fence")
    if value is None:
        return epoch, None
    if len(value) > _LARGEST:
        raise RecordError(f"a fence of {len(value)} bytes is larger than {_LARGEST}")
    try:
        if _later.decode(value).v > VERSION:
            return epoch, UNKNOWN
        fence = _decoder.decode(value)
    except UNDECODABLE as error:
        raise RecordError(f"not a fence: {error}") from error
    if fence.v != VERSION:
        raise RecordError(f"fence version {fence.v} is not {VERSION}")
    return epoch, Claimant(fence.name, fence.boot)


def epoch_headers(epoch: int) -> Headers | None:
    """The headers of all records that a home writes in `epoch`; None in epoch 0."""
    return [(EPOCH_HEADER, b"%d" % epoch)] if epoch else None


def epoch_of(headers: Iterable[tuple[str, bytes | None]] | None) -> int:
    """The epoch of a record; 0 without the header, or if it is not valid."""
    for name, raw in headers or ():
        if name == EPOCH_HEADER:
            return _number(raw or b"")
    return 0


def _number(raw: bytes) -> int:
    number = int(raw) if _NUMBER.fullmatch(raw) else 0
    return number if number <= HIGHEST_EPOCH else 0
