"""Records of the session log: the topic `sessions`, one partition per shard, compacted.

A session has up to three records, so that what changes often stays small. The key is the client id, a NUL and the kind;
a record without a value (tombstone) ends that kind. A share group (MQTT 5.0, 4.8.2) has one record, in the partition of
its own shard, and one for each of its members; it exists as long as it has members, or assignments that are open.
Instead of a client id, its key has a NUL, which no client id contains, and `$share/name/filter`; that of a member has
another NUL and the client id behind. A group has further records of its kind, one for each conversation: their keys
have the client id of the sender and the conversation's id behind, each after a NUL (R6).

| kind | record                  | written                                                          |
|------|-------------------------|------------------------------------------------------------------|
| `o`  | :class:`SessionOpened`  | before CONNACK, and when the connection is gone                  |
| `s`  | :class:`Subscribed`     | before SUBACK and UNSUBACK                                       |
| `w`  | :class:`WindowRecord`   | before what it promises is sent: see there                       |
| `g`  | :class:`GroupRecord`    | the same, for what a share group sends to its members            |
| `m`  | :class:`MemberRecord`   | before a session is a member of a share group, and when it leaves |
"""

from typing import NamedTuple

import msgspec

from schemas.envelope import Incarnation
from schemas.errors import NewerVersion, RecordError
from schemas.undecodable import UNDECODABLE

_SEPARATOR = b"\x00"


class WillRecord(msgspec.Struct, frozen=True):
    """`flags`: what policy found when the client connected, as in :class:`schemas.envelope.Meta` (Q12). `of_us` is when
    the will's connection began, µs since the epoch. No two wills of a client share it, and the message id is derived
    from it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    delay_s: int
    expiry_s: int | None
    flags: str = ""
    of_us: int = 0


class SessionOpened(msgspec.Struct, frozen=True):
    """`expiry_s`: seconds that a session outlives its connection; `disconnected_ms`: None while connected; `since`: the
    position on `egress[shard]` from which instructions concern the session; `born_us`: when it began, µs since the
    epoch, made unique within `epoch`, that of the shard: both distinguish it from other sessions of the client
    (:class:`schemas.envelope.Incarnation`); `user`: the user its client was authenticated as,
    "" for none (and in records written before users existed)."""

    client: str
    expiry_s: int
    since: int
    disconnected_ms: int | None
    will: WillRecord | None
    born_us: int = 0
    version: int = 1
    user: str = ""
    epoch: int = 0


class SubscriptionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """`effective_ms`: messages appended from then on come by instruction; the home reads earlier ones from `ingress`
    itself. Nothing before `ingress_from` (offset by partition of `ingress`) reaches the subscription. Of redundant
    feeds it gets what is released from the position `merged_from` of `egress[shard]` on.

    For a shared subscription both are those of its share group, and `group_since` and `group_born_us` are for the group
    what `since` and `born_us` of :class:`SessionOpened` are for a session.
    """

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    effective_ms: int
    ingress_from: dict[int, int]
    group_since: int = 0
    group_born_us: int = 0
    merged_from: int = 0


class Subscribed(msgspec.Struct, frozen=True):
    """`bundles`: ids of messages that came in bundles and were sent to the session as retained ones, and until when
    other copies of them may come, ms since the epoch (M14)."""

    subscriptions: list[SubscriptionRecord]
    version: int = 1
    bundles: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A QoS 2 message to the client: `packet_id` is durable before its PUBLISH is sent, `released` before PUBREL (G8).
    One that was released before a crash stays, with packet id 0, until the queue can no longer deliver it again.

    (`partition`, `offset`) is its place on `ingress`; of a retained message sent on SUBSCRIBE -1, and when it was
    offered, µs since the epoch: each sending is an exchange of its own. Of an assignment of a share group they are -2
    less the group's shard, and the assignment's number; with packet id 0 until the group has forgotten it."""

    packet_id: int
    partition: int
    offset: int
    released: bool

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    def as_released(self) -> "OutgoingRecord":
        """PUBREL is due."""
        return msgspec.structs.replace(self, released=True)

    def without_packet_id(self) -> "OutgoingRecord":
        """The exchange is over, but the message must still not be delivered again."""
        return msgspec.structs.replace(self, packet_id=0)


class SettledRecord(msgspec.Struct, frozen=True):
    """Up to where messages to the client are settled: `routed`, the position on `egress[shard]`, by partition of
    `ingress`, and at -1 the number of the last message of redundant feeds that was released; `own`, the offset on
    `ingress` of direct deliveries, by partition; `row`, the row of the spool."""

    routed: dict[int, int] = {}
    own: dict[int, int] = {}
    row: int = 0


class WindowRecord(msgspec.Struct, frozen=True):
    """Both windows of a session. The windows bound its size, however many messages have gone through.

    `received`: packet ids of QoS 2 messages from the client that are on `ingress` and not yet released, complete up to
    offset `received_until` of the client's ingress partition; later ones are found there by their `seq`.

    `settled`: QoS 1 and 2 messages to the client at or before this point need not, and at QoS 2 must not, be delivered
    again, except those in `outgoing` and those in `open`, positions (partition, offset) on `ingress`.

    `dropped`: positions of messages dropped from a full queue. They must not be delivered again either, though they
    were never sent. Those whose end is recorded everywhere are left out.

    Version 1 had no `settled`: it listed settled messages one by one in `outgoing`, with packet id 0. It can still be
    read.
    """

    outgoing: list[OutgoingRecord]
    received: list[int]
    received_until: int
    settled: SettledRecord = SettledRecord()
    open: list[tuple[int, int]] = []
    dropped: list[tuple[int, int]] = []
    version: int = 2


class LentRecord(OutgoingRecord, frozen=True, kw_only=True):
    """What :class:`AssignedRecord` was in version 1 of :class:`GroupRecord`, which had the packet id too (0: the
    session was over)."""

    client: str
    born_us: int


class AssignedRecord(msgspec.Struct, frozen=True):
    """A QoS 2 message that a share group has assigned to a member, at (partition, offset) on `ingress`: to this session
    of `client`, and to no other, whatever becomes of it. `number` identifies the assignment in the group's shard."""

    number: int
    partition: int
    offset: int
    client: str
    epoch: int
    born_us: int

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def session(self) -> Incarnation:
        return Incarnation(self.epoch, self.born_us)


class ConversationRecord(msgspec.Struct, frozen=True):
    """The session of `client` that gets all messages of a conversation from a share group. `restarted`: the place
    (partition, offset) on `ingress` of the message that tells it that another session had the conversation before."""

    client: str
    epoch: int
    born_us: int
    restarted: tuple[int, int] | None = None

    @property
    def session(self) -> Incarnation:
        return Incarnation(self.epoch, self.born_us)


class GroupRecord(msgspec.Struct, frozen=True):
    """What the share group that began at `born_us` has assigned to its members; a record of an earlier group of the
    same name is void. `settled`, `open` and `dropped` are as in :class:`WindowRecord`, for the group's shard and rows.
    Messages in `assigned` that are at or before `settled` are settled too. Version 1 had `lent` instead.

    With `conversation` it says only who gets the messages of that, and nothing else of the group; its key names the
    conversation. An earlier release, which does not know the field, takes the group for one that is over, and ends the
    record: the conversation is forgotten."""

    settled: SettledRecord
    open: list[tuple[int, int]]
    dropped: list[tuple[int, int]]
    born_us: int
    assigned: list[AssignedRecord] = []
    lent: list[LentRecord] = []
    version: int = 2
    conversation: ConversationRecord | msgspec.UnsetType = msgspec.UNSET


class MemberRecord(msgspec.Struct, frozen=True):
    """A session, (`epoch`, `born_us`) of its client, that is a member of a share group; `subscription` is its own."""

    epoch: int
    born_us: int
    subscription: SubscriptionRecord
    version: int = 1

    @property
    def session(self) -> Incarnation:
        return Incarnation(self.epoch, self.born_us)


class SessionKey(NamedTuple):
    client: str
    kind: str

    def encode(self) -> bytes:
        return self.client.encode() + _SEPARATOR + self.kind.encode()

    @classmethod
    def decode(cls, raw: bytes) -> "SessionKey":
        client, separator, kind = raw.rpartition(_SEPARATOR)
        if not separator:
            raise RecordError(f"session log key {raw!r} has no kind")
        try:
            return cls(client.decode(), kind.decode())
        except UnicodeDecodeError as error:
            raise RecordError(f"session log key {raw!r} is not UTF-8") from error


Record = SessionOpened | Subscribed | MemberRecord | WindowRecord | GroupRecord
KIND_OF: dict[type, str] = {
    SessionOpened: "o",
    Subscribed: "s",
    MemberRecord: "m",
    WindowRecord: "w",
    GroupRecord: "g",
}
"""In the order in which recovery applies them: each needs those before it."""
KINDS_OF_SESSION = ("o", "s", "w")
KIND_OF_GROUP, KIND_OF_MEMBER = "g", "m"
_TYPE_OF: dict[str, type[Record]] = {kind: record_type for record_type, kind in KIND_OF.items()}
_VERSIONS = {"o": (1,), "s": (1,), "m": (1,), "w": (1, 2), "g": (1, 2)}


def encode(record: Record) -> bytes:
    """The record as JSON; payloads in base64."""
    return msgspec.json.encode(record)


def decode(kind: str, raw: bytes) -> Record:
    """Raises NewerVersion for a version, or a kind, that a later release has written, RecordError for a malformed
    record."""
    record_type = _TYPE_OF.get(kind)
    if record_type is None:
        if _version_in(raw) > 0:
            raise NewerVersion(f"session log kind {kind!r} is unknown: a later release has written it")
        raise RecordError(f"session log kind {kind!r} is unknown")
    try:
        record: Record = msgspec.json.decode(raw, type=record_type)
    except UNDECODABLE as error:
        if (version := _version_in(raw)) > _VERSIONS[kind][-1]:
            raise NewerVersion(f"session log record {kind!r} has the unknown version {version}") from error
        raise RecordError(f"session log record {kind!r} is malformed: {error}") from error
    if record.version > _VERSIONS[kind][-1]:
        raise NewerVersion(f"session log record {kind!r} has the unknown version {record.version}")
    if record.version not in _VERSIONS[kind]:
        raise RecordError(f"session log record {kind!r} has the unknown version {record.version}")
    return record


class _Versioned(msgspec.Struct, frozen=True):
    version: int = 0


def _version_in(raw: bytes) -> int:
    """The version that a record says it has, 0 if it says none."""
    try:
        return msgspec.json.decode(raw, type=_Versioned).version
    except UNDECODABLE:
        return 0
