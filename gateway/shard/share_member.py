"""Members of share groups, and what they have in hand (MQTT 5.0, 4.8.2; R6). Pure."""

from typing import TYPE_CHECKING

import msgspec

from gateway.shard.messages import Delivery
from schemas.envelope import Incarnation
from schemas.session_log import AssignedRecord, SubscriptionRecord

if TYPE_CHECKING:
    from gateway.shard.conversations import Conversation
    from gateway.shard.share_group import ShareGroup

_BYTES_PER_ASSIGNMENT = 120


class Member(msgspec.Struct, eq=False):
    """A session that belongs to a group: its shard, and its subscription. `capacity` is how many assignments it takes
    at a time, None while it is away, which it is then since `away_since`, seconds of the group's clock; `outstanding`
    how many it has. `is_logged`: the session log has it so."""

    client: str
    session: Incarnation
    shard: int
    record: SubscriptionRecord
    capacity: int | None = None
    outstanding: int = 0
    is_logged: bool = False
    away_since: float = 0.0

    @property
    def options(self) -> tuple[int, bool, int | None]:
        """Its own part of the subscription."""
        return self.record.qos, self.record.retain_as_published, self.record.identifier

    @property
    def has_capacity(self) -> bool:
        return self.capacity is not None and self.outstanding < self.capacity


class Assigned(msgspec.Struct, eq=False):
    """A delivery of a group in the hands of a member. `packet_id`: with which the session was sent it before, 0 if it
    was not. `is_logged`: an earlier life of the home has it in its record. `conversation` is the one that it belongs
    to."""

    group: "ShareGroup"
    number: int
    delivery: Delivery
    client: str
    session: Incarnation
    shard: int
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...]
    packet_id: int = 0
    is_logged: bool = False
    times_sent: int = 0
    conversation: "Conversation | None" = None

    @property
    def record(self) -> AssignedRecord:
        return AssignedRecord(self.number, *self.delivery.place, self.client, *self.session)

    @property
    def record_bytes(self) -> int:
        """Its part of the group's record at QoS 2, about."""
        return _BYTES_PER_ASSIGNMENT + len(msgspec.json.encode(self.client))
