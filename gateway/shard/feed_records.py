"""Records about redundant feeds on `egress[shard]`: copies that routers have sent, and what the home adds itself (S3).

A home merges the copies in the order of `egress[shard]`, and in no other: that order is the same for every life of the
home. Whatever else decides is therefore put into that order, by a record whose first header is `feeds`, with the
version:

| record   | headers                              | key                 | value                         |
|----------|--------------------------------------|---------------------|-------------------------------|
| decision | `feeds`                              | `feeds/<name>`      | :class:`DecisionRecord`       |
| copy     | `feeds`, those of `ingress`, `instr` | of the destination  | payload                       |
| fence    | `feeds`                              | `feeds/`            | :class:`DecisionRecord`       |

A *decision* is what the home's timer proposes. It counts once it is read back.

A *copy* is one that no router sends to the shard, because the route of a new subscription is not in effect for it yet.
The home has read it on `ingress`. Such a record is no instruction: nobody counts it, and nothing is relinquished.

Where gateways share the shards, the header `epoch` of :mod:`schemas.fences` follows `feeds`: the epoch of the home that
has written the record. A home begins with a *fence*, a decision about no feed. Records of a lower epoch behind one of a
higher epoch are void (:meth:`gateway.shard.merged_feeds.MergedFeeds.counts`).
"""

from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from feeds.ingress_copy import marked_message
from feeds.merge_inputs import Reason
from feeds.message import FEEDS, Feed, FeedMessage
from gateway.record import Record
from gateway.shard.messages import Message, message_of
from schemas.envelope import EVERYONE, FEEDS_HEADER, ROUTED, Headers, Instruction, Meta
from schemas.errors import RecordError
from schemas.feed_topics import FEEDS_ROOT
from schemas.fences import EPOCH_HEADER, epoch_headers, epoch_of
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1
_VERSION_BYTES: Final = b"%d" % VERSION
DECISIONS_AT_MOST: Final = 1_000
"""In one record."""

_REASONS: Final = frozenset(Reason)

Kind = Literal["suspect", "give_up", "forget", "dead", "pause"]
Number = Annotated[int, msgspec.Meta(ge=0)]


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """One decision of the timer. `suspect`, `give_up`, `forget`: see :mod:`feeds.merge_inputs`. `dead`: of the slot
    `number`. `pause`: the shard has no route for the feed any more, so what it does not get from now on is no gap."""

    kind: Kind
    stream: str = ""
    number: Number = 0
    reason: str = ""


class DecisionRecord(msgspec.Struct, frozen=True, array_like=True):
    """Decisions about the feed `name`, in their order; "" without any for a fence."""

    version: int
    name: str
    decisions: list[Decided]


class FromHome(NamedTuple):
    """What a home has written in `epoch`; 0 if it shares shards with none."""

    epoch: int
    record: "DecisionRecord | FeedCopy"


class FeedCopy(msgspec.Struct, eq=False):
    """A copy at `position` on `egress[shard]`. `instruction` is the router's, None if the home has written the record;
    `instructions` are those to be relinquished with it, `copies` the positions of further ones."""

    position: int
    name: str
    slot: Feed
    stamps: FeedMessage
    message: Message
    instruction: Instruction | None
    instructions: list[Instruction]
    copies: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands on `ingress`."""
        return self.message.partition, self.message.offset


class Written(NamedTuple):
    """Key, value and headers of a record that the home writes."""

    key: bytes
    value: bytes
    headers: Headers


def decision_record(name: str, decisions: list[Decided], epoch: int = 0) -> Written:
    """The record of some decisions, at most DECISIONS_AT_MOST."""
    value = _encode(DecisionRecord(VERSION, name, decisions))
    return Written(f"{FEEDS_ROOT}/{name}".encode(), value, _headers(epoch))


def fence_record(epoch: int) -> Written:
    """The first record of a home in `epoch`."""
    return decision_record("", [], epoch)


def copy_record(record: Record, epoch: int = 0) -> Written:
    """The record for `egress` of a copy on `ingress`."""
    instr = Instruction(record.partition(), record.offset(), 0, None, record.timestamp()[1]).encode()
    headers = [*_headers(epoch), *(record.headers() or []), ("instr", instr)]
    return Written(record.key() or b"", record.value() or b"", headers)


def _headers(epoch: int) -> Headers:
    return [(FEEDS_HEADER, _VERSION_BYTES), *(epoch_headers(epoch) or ())]


def is_marked(record: Record) -> bool:
    """Whether a record of `ingress` is an adapter's copy. Of one that cannot be read: no."""
    try:
        return Meta.decode((record.headers() or [])[2][1]).feed is not None
    except (RecordError, IndexError, AttributeError):
        return False


def read(record: Record) -> FeedCopy | FromHome | None:
    """What a record of `egress` is whose key begins as topics of feeds do: a copy that a router has sent, or what a
    home has written. None if it is none of these, but a message without a mark. Raises RecordError if it is
    malformed."""
    headers = record.headers() or []
    try:
        if headers[0][0] == FEEDS_HEADER:
            return _from_home(record, headers)
        meta = Meta.decode(headers[2][1])
        return None if meta.feed is None else _copy(record, headers, meta, is_own=False)
    except (IndexError, AttributeError, UnicodeDecodeError) as error:
        raise RecordError(f"the envelope is malformed: {error}") from error


def _from_home(record: Record, headers: Headers) -> FromHome:
    if headers[0][1] != _VERSION_BYTES:
        raise RecordError(f"version {headers[0][1]!r} of a record about feeds is not {VERSION}")
    has_epoch = len(headers) > 1 and headers[1][0] == EPOCH_HEADER
    epoch = epoch_of(headers[1:2]) if has_epoch else 0
    if has_epoch and not epoch:
        raise RecordError(f"the epoch {headers[1][1]!r} of a record about feeds is malformed")
    envelope = headers[2 if has_epoch else 1 :]
    if not envelope:
        return FromHome(epoch, _decision(record))
    return FromHome(epoch, _copy(record, envelope, Meta.decode(envelope[2][1]), is_own=True))


def _copy(record: Record, headers: Headers, meta: Meta, *, is_own: bool) -> FeedCopy:
    instruction = Instruction.decode(headers[4][1])
    if instruction.scope not in (ROUTED, EVERYONE):
        raise RecordError(f"instruction scope {instruction.scope!r} is unknown")
    if meta.feed is None:
        raise RecordError("a copy has no stamps")
    topic, payload = (record.key() or b"").decode(), record.value() or b""
    name, stamps = marked_message(topic, payload, meta.feed)
    place = (instruction.partition, instruction.offset, instruction.appended)
    message = message_of(topic, payload, headers, place, meta)
    message.retain, message.bundle, message.epoch = False, None, None  # no copy has any of these
    routed = None if is_own else instruction
    return FeedCopy(
        record.offset(), name, Feed(meta.feed.slot), stamps, message, routed, [] if routed is None else [routed]
    )


def _decision(record: Record) -> DecisionRecord:
    try:
        found = _decoder.decode(record.value() or b"")
    except UNDECODABLE as error:
        raise RecordError(f"decisions about a feed are malformed: {error}") from error
    if found.version != VERSION:
        raise RecordError(f"version {found.version} of decisions about a feed is not {VERSION}")
    for one in found.decisions:
        if (one.kind == "give_up" and one.reason not in _REASONS) or (one.kind == "dead" and one.number >= len(FEEDS)):
            raise RecordError(f"a decision about a feed is malformed: {one}")
    return found


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(DecisionRecord)
