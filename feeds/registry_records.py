"""The records on the topic `feeds`: what adapters, the stream administration service and subscribers say (S1, S2, S4).

The topic is compacted and has one partition, so all readers see one order. The key is `kind/feed/rest`, UTF-8; the
values are events in JSON, versioned as those of :mod:`schemas.events`. A record without a value removes the key.

| key                                 | value                       | written by                                     |
|-------------------------------------|-----------------------------|------------------------------------------------|
| `adapter/<feed>/<adapter>`          | :class:`AdapterBeat`        | the adapter, some times a second               |
| `assignment/<feed>`                 | :class:`Assignment`         | the administration service, on a switch        |
| `subscriber/<feed>/<subscriber>`    | :class:`Subscription`       | the administration service                     |
| `request/<feed>/<id>`               | :class:`AdministrativeRequest` | the administration service                  |
| `announcement/<feed>/<id>`          | :class:`AnnouncementRecord` | the adapter that was active                    |
| `answer/<feed>/<id>`                | :class:`AnswerRecord`       | the adapter that was backup                    |
| `result/<feed>/<id>`                | :class:`AdministrativeResult` | the adapter that was active, or a gateway      |

Times `_us` are the writer's clock, for people and for lags between two records of one writer: nothing is decided by
them. Who reads decides by the broker's append times and by what arrives.
"""

import re
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from feeds.errors import FeedRecordError
from feeds.message import FEED_NAME, NAME_BYTES_MAX, NUMBER_MAX, Feed
from feeds.pairing import FeedSource
from schemas.events import Event
from schemas.events import decode as decode_event
from schemas.feed_words import AdapterState, Slot, SubscriberMode

Kind = Literal["adapter", "assignment", "subscriber", "request", "announcement", "answer", "result"]
SLOTS: Final[tuple[Slot, Slot]] = ("active", "backup")
LARGEST_RECORD: Final = 262_144
"""The largest record, in bytes, that readers accept."""
STREAMS_IN_BEAT: Final = 64
"""The most source streams of which a beat has positions."""

_NAME: Final = re.compile(rf"[^\x00-\x1f/;]{{1,{NAME_BYTES_MAX}}}")
Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Text = Annotated[str, Meta(max_length=1_000)]


class RegistryKey(NamedTuple):
    """`name` is the adapter, subscriber or id; empty for an assignment."""

    kind: Kind
    feed: str
    name: str = ""

    def encode(self) -> bytes:
        """The key of the record."""
        return "/".join(part for part in self if part).encode()


class StreamPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far an adapter is in one source stream: the highest number it has written, and when it read it."""

    sequence: Count
    read_us: Count


class AdapterBeat(Event, frozen=True, kw_only=True):
    """What an adapter says of itself. (`boot`, `seq`) orders the records of a name; `boot` is when the process started.
    `reason` says why it is in the state `refused`. `machine` and `zone` are where it runs: the two adapters of a pair
    should differ in both. `source` decides on pairs (:mod:`feeds.pairing`). `messages` is how many it has written since
    `boot`; `streams` has positions of the source streams written last.
    """

    boot: Count
    seq: Count
    slot: Slot
    state: AdapterState
    at_us: Count
    machine: Annotated[str, Meta(min_length=1, max_length=255)]
    zone: Annotated[str, Meta(max_length=64)] = ""
    source: FeedSource
    reason: Text = ""
    messages: Count = 0
    malformed: Count = 0
    streams: Annotated[dict[str, StreamPosition], Meta(max_length=STREAMS_IN_BEAT)] = msgspec.field(
        default_factory=dict
    )


class Assignment(Event, frozen=True, kw_only=True):
    """Which slot is the active stream; the other one is the backup. `revision` grows with each switch; of several
    records with one revision the first on the topic counts. `by`: who asked (an identity, or a gateway that saw an
    adapter die). `automatic`: nobody asked, so it may be taken back (`feeds.failback`)."""

    active: Slot
    revision: Count
    reason: Text
    by: Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
    at_us: Count
    automatic: bool = False


class Subscription(Event, frozen=True, kw_only=True):
    """A subscriber that told the service of itself. It lapses unless renewed within `ttl_s`, by the append time."""

    mode: SubscriberMode = "warm"
    identity: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] = ""
    ttl_s: Annotated[int, Meta(ge=1, le=86_400)] = 60
    at_us: Count


class AdministrativeRequest(Event, frozen=True, kw_only=True):
    """Somebody asks for an administrative message in `stream` (S4). `lead`: after how many further messages; None: the
    active adapter computes it."""

    stream: Annotated[str, Meta(min_length=1, max_length=300)]
    payload: Annotated[bytes, Meta(max_length=131_072)]
    lead: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    by: Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
    at_us: Count


class AnnouncementRecord(Event, frozen=True, kw_only=True):
    """:class:`feeds.synchronise.Announcement`. `adapter` and `boot` of who announces; a put-off message has the same
    id, and a higher `attempt`."""

    stream: Annotated[str, Meta(min_length=1, max_length=300)]
    after: Count
    part: Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
    payload: Annotated[bytes, Meta(max_length=131_072)]
    adapter: Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
    boot: Count
    attempt: Count = 0


class AnswerRecord(Event, frozen=True, kw_only=True):
    """:class:`feeds.synchronise.Answer` to the announcement of this id and attempt."""

    stream: Annotated[str, Meta(min_length=1, max_length=300)]
    after: Count
    part: Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
    verdict: Literal["accepted", "passed", "behind", "full", "taken"]
    last: Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]
    adapter: Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
    attempt: Count = 0


class AdministrativeResult(Event, frozen=True, kw_only=True):
    """What became of a request. `both`: the backup has accepted, so it is at the same point of both streams; `alone`:
    the active sent it without the backup; `cancelled`, `refused`: not sent; `unknown`: it was announced, and no adapter
    of the feed has come back: one may have sent it, and none sends it any more. `reason` says why, in words."""

    outcome: Literal["both", "alone", "cancelled", "refused", "unknown"]
    reason: Text = ""
    after: Count = 0
    part: Count = 0


RegistryRecord = (
    AdapterBeat
    | Assignment
    | Subscription
    | AdministrativeRequest
    | AnnouncementRecord
    | AnswerRecord
    | AdministrativeResult
)

_TYPES: Final[dict[str, type[Event]]] = {
    "adapter": AdapterBeat,
    "assignment": Assignment,
    "subscriber": Subscription,
    "request": AdministrativeRequest,
    "announcement": AnnouncementRecord,
    "answer": AnswerRecord,
    "result": AdministrativeResult,
}


def other_slot(slot: Slot) -> Slot:
    """The other one of the two."""
    return SLOTS[1 - SLOTS.index(slot)]


def feed_of(slot: Slot) -> Feed:
    """The merger's number of a slot."""
    return Feed(SLOTS.index(slot))


def decode_key(key: bytes | None) -> RegistryKey:
    """Raises FeedRecordError for a key that is none of the topic's."""
    try:
        kind, _, rest = (key or b"").decode().partition("/")
    except UnicodeDecodeError as error:
        raise FeedRecordError(f"key {(key or b'')[:300]!r} is not well-formed UTF-8") from error
    feed, _, name = rest.partition("/")
    has_name = kind != "assignment"
    if kind not in _TYPES or FEED_NAME.fullmatch(feed) is None or bool(name) is not has_name:
        raise FeedRecordError(f"key {(key or b'')[:300]!r} is not kind/feed/name, or a kind that is not known")
    if has_name and _NAME.fullmatch(name) is None:
        raise FeedRecordError(f"name {name[:300]!r} has control characters, '/' or ';', or is too long")
    return RegistryKey(kind, feed, name)  # type: ignore[arg-type]  # checked above


def decode(key: bytes | None, value: bytes | None) -> tuple[RegistryKey, RegistryRecord | None]:
    """A record; None as record if its key was removed. Raises FeedRecordError: whoever may write to the topic may
    have written anything."""
    found = decode_key(key)
    if value is None:
        return found, None
    if len(value) > LARGEST_RECORD:
        raise FeedRecordError(f"a record of {len(value)} bytes on the topic feeds is larger than {LARGEST_RECORD}")
    record = decode_event(_TYPES[found.kind], value)
    return found, record  # type: ignore[return-value]  # one of the types above
