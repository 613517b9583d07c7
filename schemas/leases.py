"""The records on `leases`: which gateway owns which shard (G4, G6, G14). One partition, compacted.

| key                               | value                              | written by                         |
|-----------------------------------|------------------------------------|------------------------------------|
| `c/<shard>/<epoch>/<boot>/<name>` | :class:`Claim` or :class:`Release` | the claimant, once and never again |
| `s/<shard>/<epoch>/<boot>/<name>` | :class:`Standbys`                  | the owner of this epoch            |

The claimant is a gateway's process, by name and boot. The owner of a shard follows from the claims by a fold
(:mod:`gateway.cluster.lease_table`): the record with the highest epoch counts, and among these the one with the lowest
offset.

The epoch stands in the key, for two reasons. Each claim has a key of its own, so compaction never removes one that no
tombstone names. And a tombstone means one claim of one epoch: one that arrives late cannot erase a newer claim of the
same gateway.

**Tombstones.** Whoever owns a shard may write a tombstone for a key of a lower epoch than its own, and for no other. A
record of the highest epoch therefore stays for ever, and a reader that misses a tombstone comes to the same result.

Whoever may write to the topic may write anything; :func:`decode_lease` refuses what is not valid.

**Versions.** All gateways must agree on the owner, also those that do not know a later version of a record. Key and
kind decide that, so they never change their meaning: a record of a later version counts as one of its kind that says
nothing else.
"""

import re
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from schemas.errors import RecordError
from schemas.members import LONGEST_NAME
from schemas.undecodable import UNDECODABLE

HIGHEST_EPOCH: Final = 2**53 - 1
"""The highest epoch: JSON readers in other languages keep integers up to this."""

LARGEST_RECORD: Final = 8_192
"""The largest value, in bytes, that readers accept."""

MOST_SHARDS: Final = 65_536

MOST_STANDBYS: Final = 8

VERSION: Final = 1

_KEY = re.compile(
    rb"(?P<kind>[cs])/(?P<shard>0|[1-9][0-9]{0,4})/(?P<epoch>[1-9][0-9]{0,15})/(?P<boot>0|[1-9][0-9]{0,18})"
    rb"/(?P<name>.{1,1020})",
    re.DOTALL,
)
_MOST_BOOT = (1 << 63) - 1
_SHOWN = 80

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]


class Claimant(NamedTuple):
    """A gateway's process: its name, and `boot` as in :class:`schemas.members.Heartbeat`."""

    name: str
    boot: int


class LeaseKey(NamedTuple):
    """`kind`: `c` for a claim or a release, `s` for standbys. `epoch` is at least 1."""

    kind: str
    shard: int
    epoch: int
    claimant: Claimant

    def encode(self) -> bytes:
        return f"{self.kind}/{self.shard}/{self.epoch}/{self.claimant.boot}/{self.claimant.name}".encode()

    @classmethod
    def decode(cls, raw: bytes | None) -> "LeaseKey":
        """Raises RecordError for anything but a key as :meth:`encode` makes it."""
        found = _KEY.fullmatch(raw or b"")
        if found is None:
            raise RecordError(f"the key {(raw or b'')[:_SHOWN]!r} is not one of a lease")
        shard, epoch, boot = int(found["shard"]), int(found["epoch"]), int(found["boot"])
        try:
            name = found["name"].decode()
        except UnicodeDecodeError as error:
            raise RecordError(f"the name in the key {(raw or b'')[:_SHOWN]!r} is not UTF-8") from error
        if shard >= MOST_SHARDS or epoch > HIGHEST_EPOCH or boot > _MOST_BOOT or len(name) > LONGEST_NAME:
            raise RecordError(f"the key {(raw or b'')[:_SHOWN]!r} has a number or a name beyond its limit")
        return cls(found["kind"].decode(), shard, epoch, Claimant(name, boot))


class Claim(msgspec.Struct, frozen=True, kw_only=True, tag="claim"):
    """The claimant asks for the shard in the epoch of the key. `at_us`: its own clock, for people."""

    v: int = VERSION
    at_us: Annotated[int, Meta(ge=0, le=_MOST_BOOT)] = 0


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """The owner gives the shard up: in the epoch of the key nobody owns it. `successor` is to claim it next; others
    wait a while for it. None: anybody may claim."""

    v: int = VERSION
    successor: Name | None = None
    at_us: Annotated[int, Meta(ge=0, le=_MOST_BOOT)] = 0


class Standbys(msgspec.Struct, frozen=True, kw_only=True, tag="standbys"):
    """The names of the members that keep the shard's state warm, in the order in which they take over. The first record
    of an epoch says also that the owner's fences are in force (:mod:`gateway.cluster.fencing`)."""

    v: int = VERSION
    names: Annotated[list[Name], Meta(max_length=MOST_STANDBYS)]


LeaseValue = Claim | Release | Standbys


class _Later(msgspec.Struct, frozen=True):
    """What is read of a record of a later version."""

    type: str = ""
    v: int = 0


_decoder: msgspec.json.Decoder[LeaseValue] = msgspec.json.Decoder(Claim | Release | Standbys)
_later = msgspec.json.Decoder(_Later)
_encoder = msgspec.json.Encoder()


def encode_lease(value: LeaseValue) -> bytes:
    return _encoder.encode(value)


def decode_lease(key: bytes | None, value: bytes | None) -> tuple[LeaseKey, LeaseValue | None]:
    """The key and what it says; None for a tombstone. Of a record of a later version only the kind is read. Raises
    RecordError for a record that is not valid."""
    found = LeaseKey.decode(key)
    if value is None:
        return found, None
    if len(value) > LARGEST_RECORD:
        raise RecordError(f"a lease record of {len(value)} bytes is larger than {LARGEST_RECORD}")
    try:
        record = _decoder.decode(value)
    except UNDECODABLE as error:
        later = _of_later_version(found, value)
        if later is None:
            raise RecordError(f"not a lease record: {error}") from error
        return found, later
    if record.v > VERSION:
        return found, _of_later_version(found, value)
    if record.v != VERSION:
        raise RecordError(f"lease record version {record.v} is not {VERSION}")
    if isinstance(record, Standbys) != (found.kind == "s"):
        raise RecordError(f"a {type(record).__name__} does not belong under a key of kind {found.kind!r}")
    return found, record


def _of_later_version(key: LeaseKey, value: bytes) -> LeaseValue | None:
    """What a record of a later version says for certain; None if it is none."""
    try:
        head = _later.decode(value)
    except UNDECODABLE:
        return None
    if head.v <= VERSION:
        return None
    if key.kind == "s":
        return Standbys(names=[])
    return Release() if head.type == "release" else Claim()
