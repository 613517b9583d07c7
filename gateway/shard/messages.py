"""A message as a home holds it, and what one session still has to do with it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from mqtt.errors import RemoteProtocolError
from mqtt.properties import NO_PROPERTIES, check_forwarded
from mqtt.topics import is_topic_name, is_topic_string
from schemas.envelope import BundleMark, Instruction, Meta
from schemas.errors import RecordError
from schemas.events import NAME_CHARACTERS, RecipientOutcome
from schemas.identity import INBOX_MARK

GROUP_MARK = "\0"
"""Before the name of a share group where names of sessions stand: no client id has it [MQTT-1.5.4-2]."""

Outcome = Literal["delivered", "sent", "expired", "ended", "dropped"]
"""What became of a message for one recipient."""


class Message(msgspec.Struct, gc=False, omit_defaults=True):
    """A message on its way to recipients. `properties` are MQTT 5 properties in wire encoding; times are ms since the
    epoch; (`partition`, `offset`) is its place on `ingress` and identifies it. `flags` are the letters of its envelope.

    Of a retained message `partition` is -1 and `offset` that on `retained`; `offered_us` tells one sending of it on
    SUBSCRIBE from the next: when it was offered, µs since the epoch, 0 for other messages. `bundle` and `epoch`: see
    :class:`schemas.envelope.Meta`."""

    id: str
    source: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    expires: int | None
    properties: bytes
    partition: int
    offset: int
    appended: int
    flags: str = ""
    offered_us: int = 0
    bundle: BundleMark | None = None
    epoch: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among a session's messages: on `ingress`. Each sending of a retained message has a place of
        its own, (-1, `offered_us`)."""
        return self.partition, self.offered_us or self.offset

    @property
    def size(self) -> int:
        """What it counts for limits, bytes: topic, payload and properties."""
        return len(self.topic) + len(self.payload) + len(self.properties)


class Release(NamedTuple):
    """When the merge of redundant feeds has let a message go: its number among all that the shard has merged, the
    position on `egress[shard]` of the record that let it go, and whether it is late
    (:mod:`gateway.shard.merged_feeds`).
    """

    number: int
    position: int
    is_late: bool


class PendingMessage(msgspec.Struct, eq=False):
    """A message with the instructions a shard got for it; done when no recipient is left (`unfinished` 0).

    `instructions` is empty for a direct delivery (retained, or read before its route took effect): none to relinquish.
    `pending_since` is since when (seconds since the epoch); after a restart that is when the message was appended, so
    that a home that dies again and again moves it to the spool all the same. `position` is the offset of the
    instruction on `egress[shard]`, -1 where there is none to read again. `deliveries` are those to its recipients,
    `outcomes` what became of them and is not reported yet. `number` is its place in the order in which the shard's
    messages were offered; `copies` are the positions of further instructions for it; `done` are clients that were
    finished before a restart, `finished` those that are since the last checkpoint while others wait; `left` see
    :class:`gateway.shard.shard.Shard`. Once the message is `spooled`, its deliveries have rows in the spool, except
    those at QoS 0; neither they nor `unfinished` count any more."""

    message: Message
    shard: int
    position: int
    pending_since: float
    instructions: list[Instruction]
    unfinished: int = 0
    deliveries: list["Delivery"] = []
    outcomes: list[RecipientOutcome] = []
    number: int = 0
    copies: tuple[int, ...] = ()
    done: Sequence[str] = ()
    finished: list[str] = []
    left: Sequence[str] = ()
    spooled: bool = False
    release: Release | None = None

    @property
    def offered_at(self) -> int:
        """The position on `egress[shard]` at which it was offered to sessions, -1 if it is not there."""
        return self.position if self.release is None else self.release.position


class Assignment(NamedTuple):
    """A message that the share group named `group` has given to one member. `number` is unique in the group's shard,
    `shard`, also across restarts."""

    group: str
    shard: int
    number: int

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among a session's messages: (partition, offset), with a partition that `ingress` has not."""
        return assigned_place(self.shard, self.number)


Sending: TypeAlias = tuple[int, int]
"""One of the times that a group sends an assignment: the epoch of its home, and how often that has sent it by then."""


def assigned_place(shard: int, number: int) -> tuple[int, int]:
    """The place of an assignment; partition -1 is that of retained messages."""
    return -2 - shard, number


def is_retained(place: tuple[int, int]) -> bool:
    """Whether a place is that of a retained message that is sent on SUBSCRIBE; then its number is `offered_us`."""
    return place[0] == -1


def is_assigned(place: tuple[int, int]) -> bool:
    """Whether a place is that of an assignment."""
    return place[0] <= -2


def shard_of_place(place: tuple[int, int]) -> int:
    """The shard of the group that has assigned what stands there."""
    return -2 - place[0]


class Delivery(msgspec.Struct, eq=False):
    """One recipient's share of a pending message: what its PUBLISH will say, and where it stands.

    `packet_id` is 0 until taken for sending; `sent` once written to the present or an earlier connection; `dup` if it
    is sent again; `released` after PUBREC (QoS 2); `row` its row in the spool; `finished` once nothing is owed.

    `recipient` are the client and the QoS to name in its outcome, if not its own: of a share group's delivery, those of
    the member it is assigned to. `assigned` is set if a share group has given it to the session: then nobody but the
    group reports its outcome. `sending` says which sending of the assignment has come last.
    """

    client: str
    pending: PendingMessage
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    packet_id: int = 0
    sent: bool = False
    dup: bool = False
    released: bool = False
    finished: bool = False
    row: int | None = None
    recipient: tuple[str, int] | None = None
    assigned: Assignment | None = None
    sending: Sending = (0, 0)

    @property
    def place(self) -> tuple[int, int]:
        """The place of its message, or of its assignment."""
        if self.assigned is not None:
            return self.assigned.place
        return self.pending.message.place

    @property
    def is_brought_again(self) -> bool:
        """Whether a restart brings it again as the same: not at QoS 0, nor a retained message sent on SUBSCRIBE."""
        return self.qos > 0 and self.place[0] >= 0

    def is_expired(self, now: float) -> bool:
        """Whether the message's time is over at `now`, seconds since the epoch."""
        expires = self.pending.message.expires
        return expires is not None and expires <= now * 1000

    def mark_repeated(self, sent_to_ms: int, now: float) -> None:
        """QoS 1, after a restart: DUP says that the client may have it already (MQTT 5.0, 3.3.1.1), for what was
        appended by `sent_to_ms` may have been sent."""
        message = self.pending.message
        if self.qos == 1 and message.partition >= 0 and message.appended <= sent_to_ms:
            self.dup = self.dup or not self.is_expired(now)

    @property
    def may_return(self) -> bool:
        """Whether another member of the share group that assigned it may get it: not what may have been sent at QoS 2
        [MQTT-4.8.2-4], [MQTT-4.8.2-5]."""
        return self.qos < 2 or not (self.sent or self.dup)

    @property
    def is_from_spool(self) -> bool:
        """Whether the spool has brought it: no shard holds its message."""
        return self.row is not None and not self.pending.number


def message_of(
    topic: str,
    payload: bytes,
    headers: list[tuple[str, bytes]],
    place: tuple[int, int, int],
    meta: Meta | None = None,
) -> Message:
    """The message in a Kafka record with the envelope's headers; `place` is (partition, offset, append time) there,
    `meta` its header of that name if it is decoded already.

    Raises RecordError for a malformed envelope, and for a destination or an id that no gateway writes: clients could
    not be sent the one, nor `progress` take the other.
    """
    try:
        message_id, source = headers[0][1].decode(), headers[1][1].decode()
        meta, properties = meta or Meta.decode(headers[2][1]), headers[3][1] or NO_PROPERTIES
    except (IndexError, AttributeError, UnicodeDecodeError) as error:  # too few headers, or one without value
        raise RecordError(f"the envelope is malformed: {error}") from error
    if not is_topic_name(topic) and not (topic.startswith(INBOX_MARK) and is_topic_string(topic)):
        raise RecordError(f"the destination {topic[:200]!r} is no topic name")
    if len(message_id) > NAME_CHARACTERS:
        raise RecordError(f"the id of a message has {len(message_id)} characters, more than {NAME_CHARACTERS}")
    if properties != NO_PROPERTIES:
        try:
            check_forwarded(properties)
        except RemoteProtocolError as error:  # another producer's
            raise RecordError(f"the envelope's properties are malformed: {error}") from error
    qos, flags, expires = meta.qos, meta.flags, meta.expires
    return Message(
        message_id,
        source,
        topic,
        payload,
        qos,
        meta.retain,
        expires,
        properties,
        *place,
        flags,
        0,
        meta.bundle,
        meta.epoch,
    )
