"""The JSON events on `routes`, `progress`, `completion`, `presence`, `message-presence` and `quarantine`.

The states that Spark merges from them are in :mod:`schemas.states`.

Each event is a msgspec struct; Spark reads it with the schema that :mod:`pipelines.spark_schemas` derives from it.
Every event has a version `v`; readers refuse a version they do not know. Times are integers since the epoch, named by
unit: `_us` microseconds, `_ms` milliseconds.
"""

from typing import Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from schemas.errors import RecordError
from schemas.origin import Origin
from schemas.receipts import ReceiptRequest
from schemas.undecodable import UNDECODABLE

E = TypeVar("E", bound="Event")

CLOCKS_APART_S = 3600
"""By how many seconds other machines' clocks may be ahead of the broker's. Records that claim to be younger are
refused."""


DROP_LEADS = 2
"""How many times `route_lead` after its append time the `drop` of a route takes effect. With more than one, an `add`
that is appended within `route_lead` after it comes in time to undo it."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all events, with the version of the layout."""

    v: int = 1


class RouteEvent(Event, frozen=True, kw_only=True):
    """On `routes`, key `shard:route_key` (or `tick`): a shard begins or ceases to want a route key (R6, R7).

    An `add` takes effect `route_lead` after its append time, a `drop` DROP_LEADS times as long after it. A `tick`
    changes nothing; its append time shows up to when the routes are complete even while nobody subscribes.
    """

    op: Literal["add", "drop", "tick"]
    route_key: str = ""
    shard: int = -1

    @property
    def kafka_key(self) -> str:
        return "tick" if self.op == "tick" else f"{self.shard}:{self.route_key}"


class RecipientOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message for one recipient.

    `delivered`: the client acknowledged it; `sent`: written to the client's connection at QoS 0; `expired`: its expiry
    time passed; `ended`: the recipient's session ended first; `dropped`: refused by a limit of the recipient's session.
    """

    client: str
    outcome: Literal["delivered", "sent", "expired", "ended", "dropped"]
    qos: int
    at_us: int


class ProgressEvent(Event, frozen=True, kw_only=True):
    """On `progress`, key message id: the progress of an instruction (R4).

    `outcome` reports deliveries, with more to come; `relinquish` reports the last ones and ends the instruction;
    `untouched` comes from the router: nobody wants the message, so it is complete with limit 0 (R7). `replayed` marks a
    relinquish that a home repeats after a restart because it may already have been published; it counts for completion
    and adds nothing to `outcomes`. `scope` is that of the instruction (:class:`schemas.envelope.Instruction`): a
    message is complete when all instructions of one scope are relinquished.

    `partition` and `offset` are those of the message on `ingress`. For a retained message sent on SUBSCRIBE,
    `partition` is -1 and `offset` is that on `retained`; `offered_us` is when it was offered to its recipient, which
    tells one sending from the next. `origin` is who sent the message. Both are null from gateways of earlier versions.

    `asked` comes from the gateway that took the message: its sender wants the `receipt` (Q13). It may come before or
    after all others. `is_awaited` marks the events of such a message, but for those of a sending on SUBSCRIBE; others
    do not have the field. The message's offset and append time are not known yet: -1 and 0. `read` says that the client
    `read_by` has read the message; of its place nothing is known.
    """

    kind: Literal["outcome", "relinquish", "untouched", "asked", "read"]
    id: str
    partition: int
    offset: int
    appended_ms: int
    scope: Literal["routed", "everyone"] = "routed"
    shard: int | None = None
    number: int | None = None
    limit: int | None = None
    deliveries: list[RecipientOutcome] = []
    replayed: bool = False
    offered_us: int | None = None
    origin: Origin | None = None
    is_awaited: bool | UnsetType = UNSET
    receipt: ReceiptRequest | UnsetType = UNSET
    read_by: str | UnsetType = UNSET


class CompletionEvent(Event, frozen=True, kw_only=True):
    """On `completion`, key message id: all `touches` instructions are relinquished; it may be deleted everywhere."""

    id: str
    touches: int
    appended_ms: int
    completed_ms: int


class PresenceEvent(Event, frozen=True, kw_only=True):
    """On `presence`, key client id, the gateway's name for an event about itself, or `tick` (R12).

    A client's connection is an *attachment*, identified by (`gateway`, `attachment`); the latter is used if one gateway
    has several of a client. `connected`, `heartbeat`: it is live. `disconnected`, `lost`: it has ended; `lost` without
    a report by the client. (`epoch`, `seq`) orders the events of a client. `reason` is the close reason; `user` is the
    user the client was authenticated as, "" for none (R11).

    With an empty `client`, a gateway reports on itself: `heartbeat`, it is alive; `disconnected`, it shuts down. `boot`
    identifies its process by its start time, µs since the epoch; 0 if the reporter has none. With an empty `gateway`
    too, the event is a `tick` of the ledger, one in each partition. If no heartbeat of a gateway precedes it for long,
    the gateway is gone, and all its attachments with it.
    """

    client: str
    event: Literal["connected", "disconnected", "lost", "heartbeat", "tick"]
    gateway: str
    epoch: int
    seq: int
    at_us: int
    peer: str = ""
    protocol: str = ""
    reason: str = ""
    user: str = ""
    attachment: str = ""
    boot: int = 0

    @property
    def kafka_key(self) -> str:
        return "tick" if self.event == "tick" else self.client or self.gateway


NAME_CHARACTERS: Final = 1024
"""The longest name in an event of message presence: of a message, an agent or a destination."""


class MessagePresenceEvent(Event, frozen=True, kw_only=True):
    """On `message-presence`, key message id: what one agent did about a message (M9).

    * `attempting`: `agent` tries to deliver it on behalf of `origin`, and so holds it
    * `propagated`: `agent` has handed a copy to `peer`
    * `claimed`: `agent` asks to be the one that delivers, until `until_us` at the latest (M11)
    * `delivered`: `agent` has delivered it to `peer`, its recipient (M12)
    * `refused`: `agent` does not, or no longer, hold it, for `reason` (M6); ends a claim of its own
    * `expired`: its time was over
    * `retired`: its originator knows what became of it and needs no record (M13)

    `at_us` is when it happened, by the agent's clock; `until_us` is how long the claim, or the record of the message,
    is to be kept; 0 for the default. `id`, `agent`, `origin` and `peer` have at most `NAME_CHARACTERS`, so that the
    state of a message stays below Kafka's limit.
    """

    id: str
    event: Literal["attempting", "propagated", "claimed", "delivered", "refused", "expired", "retired"]
    agent: str
    at_us: int
    origin: str = ""
    peer: str = ""
    reason: str = ""
    until_us: int = 0


class QuarantineEvent(Event, frozen=True, kw_only=True):
    """On `quarantine`, key source topic: a record nobody could parse; `record` is its value, base64, cut at 64 KiB, and
    `reason` is cut at 1,000 characters.

    `appended_ms` is when the record was appended: a recreated topic has the same offsets again. Null from earlier
    versions.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    record: str
    at_us: int
    appended_ms: int | None = None


def encode(event: Event) -> bytes:
    """The event as one JSON object."""
    return _encoder.encode(event)


def decode(kind: type[E], raw: bytes) -> E:
    """The event in `raw`; raises RecordError when it is not JSON, lacks a field, or has another version, also when it
    is nested too deeply."""
    try:
        event = msgspec.json.decode(raw, type=kind)
    except UNDECODABLE as error:
        raise RecordError(f"not a {kind.__name__}: {error}") from error
    if event.v != 1:
        raise RecordError(f"{kind.__name__} version {event.v} is not 1")
    return event


def decode_good(kind: type[E], raw: bytes) -> E | None:
    """As :func:`decode`, but None if `raw` is no such event."""
    try:
        return decode(kind, raw)
    except RecordError:
        return None


_encoder = msgspec.json.Encoder()
