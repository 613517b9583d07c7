"""What gateways answer and accept about redundant feeds over HTTP, `/v1/feeds` (S1, S4). docs/feeds.md explains it."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from schemas.feed_words import AdapterState, Slot, SubscriberMode

FEEDS_PATH: Final = "/v1/feeds"
SUBSCRIBER_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}$"
STREAM_PATTERN: Final = r"^[^\x00-\x1f#+]{1,255}@(0|[1-9][0-9]{0,18})$"
PAYLOAD_BYTES: Final = 131_072
"""The largest administrative message."""

FEEDS_ROOT: Final = "$feeds"
"""Clients that may subscribe to `feeds/<feed>/#` may see and read a feed; those that may publish to
`$feeds/<feed>/switch` may switch it; to `$feeds/<feed>/administrative`, send administrative messages. `$feeds/<feed>`
is the topic of its state, to which nobody publishes."""

FeedStateName = Literal["redundant", "single", "down", "refused"]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class FeedPlace(_Answer, frozen=True):
    """Where a stream comes from. `zone` is empty if the adapter does not say."""

    slot: Slot
    adapter: str
    machine: str
    zone: str


class FeedAdapter(_Answer, frozen=True):
    """An adapter by its newest heartbeat."""

    name: str
    slot: Slot
    state: AdapterState
    alive: bool


class FeedState(_Answer, frozen=True):
    """A feed: whether it is redundant, which streams to read, and why it is not redundant."""

    name: str
    state: FeedStateName
    active: FeedPlace | None
    backup: FeedPlace | None
    reason: str
    revision: int
    adapters: list[FeedAdapter]
    subscribers: int


class FeedList(_Answer, frozen=True):
    """The feeds that the caller may read."""

    feeds: list[FeedState]


class FeedPosition(_Answer, frozen=True):
    """The highest number that an adapter has written, and when it read it, µs since the epoch, by its clock."""

    sequence: int
    read_us: int


class FeedAdapterDetail(_Answer, frozen=True):
    """An adapter in detail. `source` describes what it reads; `messages`, `malformed` count since its start."""

    name: str
    slot: Slot
    state: AdapterState
    alive: bool
    reason: str
    machine: str
    zone: str
    source: str
    messages: int
    malformed: int
    streams: dict[str, FeedPosition]


class FeedLag(_Answer, frozen=True):
    """Of one source stream: how many numbers the backup stream is behind the active one; less than 0: ahead. The two
    positions are from heartbeats at different moments."""

    stream: str
    lag: int


class FeedAssignment(_Answer, frozen=True):
    """Which slot is to be the active stream. Revision 0: nobody has assigned it yet."""

    active: Slot
    revision: int
    reason: str = ""
    by: str = ""
    at_us: int = 0
    automatic: bool = False


class FeedPair(_Answer, frozen=True):
    """Whether the two streams can be merged: where their common numbers come from, or why not."""

    numbers_from: str = ""
    refused: str = ""


class FeedDetail(_Answer, frozen=True):
    """A feed in detail. `pair` is null unless both streams are written. `advice`: what would make the feed safer."""

    name: str
    state: FeedStateName
    active: FeedPlace | None
    backup: FeedPlace | None
    reason: str
    revision: int
    adapters: list[FeedAdapterDetail]
    subscribers: int
    assignment: FeedAssignment
    pair: FeedPair | None
    lag: list[FeedLag]
    advice: list[str]


class SubscriberRequest(_Request, frozen=True):
    """Subscribe to a feed, or renew. `warm`: reads both streams; `cold`: reads the backup only once it is needed."""

    subscriber: Annotated[str, Meta(pattern=SUBSCRIBER_PATTERN)]
    mode: SubscriberMode = "warm"


class BrokeredPair(_Answer, frozen=True):
    """The streams to read, on a Kafka topic: the first half of its partitions is of the slot `active`, the second of
    `backup`. `prefix` is that of all topics. Renew before `ttl_s` seconds have passed."""

    feed: str
    topic: str
    partitions: int
    prefix: str
    active: FeedPlace | None
    backup: FeedPlace | None
    revision: int
    mode: SubscriberMode
    ttl_s: int
    reason: str


class SwitchRequest(_Request, frozen=True):
    """Make a slot the active stream."""

    active: Slot
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class AdministrativeMessage(_Request, frozen=True):
    """A message to be put into a source stream, at the same point of both feeds. Either `payload`, text, or
    `payload_base64`. `lead`: after how many further messages; without it the adapter computes it."""

    stream: Annotated[str, Meta(pattern=STREAM_PATTERN)]
    payload: Annotated[str, Meta(max_length=PAYLOAD_BYTES)] | None = None
    payload_base64: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES)] | None = None
    lead: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class AdministrativeState(_Answer, frozen=True):
    """What has become of an administrative message. `both`: at the same point of both feeds; `alone`: the active
    adapter has sent it without the backup; `cancelled`, `refused`: it was not sent, for `reason`; `unknown`: no adapter
    came back to say so. It follows message `after`, as its `part`-th."""

    id: str
    outcome: Literal["pending", "both", "alone", "cancelled", "refused", "unknown"]
    reason: str = ""
    after: int = 0
    part: int = 0


ChangeKind = Literal[
    "adapter_came",
    "adapter_died",
    "adapter_left",
    "adapter_state",
    "switched",
    "redundant",
    "single",
    "down",
    "refused",
]


class FeedChange(_Answer, frozen=True):
    """Something has changed: an adapter came, died, stopped in order or changed its state; the active stream was
    switched; or the feed's state changed, to the one named. `feed` is the feed as it is since then."""

    kind: ChangeKind
    at_us: int
    feed: FeedState
    adapter: str = ""
    reason: str = ""
