"""What a client has in hand on a connection that goes on at another gateway (R5; MQTT 5.0, 4.4, 4.9). Pure.

Theory of operation. The next home of a shard reads again what is not finished. A delivery that the client has been sent
on the same connection must then not be sent again: its packet id is in use, and its acknowledgement may already be on
the way. So the former home says which deliveries those are, by the place of their message, and the next one takes each
as sent when it comes again (:meth:`InHand.take`). Nothing is read from the client before all of them have come: until
then an acknowledgement would mean nothing. If one does not come in time, the connection ends, and all goes on as after
any other loss.

QoS 2 exchanges that the client has released or received are in the session log, with their packet ids. They never come
again, so only the room that they take in the client's window is remembered, in `reserved`.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.shard.messages import Delivery
from mqtt.limits import PACKET_ID_MAX

PacketId = Annotated[int, Meta(ge=1, le=PACKET_ID_MAX)]
Key = tuple[int, int, int]
"""Of a delivery: the place of its message, and which sending of a retained message it is."""


class DeliveryInHand(msgspec.Struct, frozen=True, array_like=True):
    """A message at QoS 1, or at QoS 2 and not received yet, that the client was sent as `packet_id`. (`partition`,
    `offset`) is its place; for that and `offered_us` see :class:`gateway.shard.messages.Message`."""

    packet_id: PacketId
    qos: Annotated[int, Meta(ge=1, le=2)]
    partition: int
    offset: int
    offered_us: int

    @property
    def key(self) -> Key:
        return self.partition, self.offset, self.offered_us


class InHand:
    """What is to come again. `then` is called when all has come. `sent_to_ms` is for what has not, if the connection
    ends before (:class:`gateway.shard.session.Session`)."""

    def __init__(self, deliveries: list[DeliveryInHand], sent_to_ms: int, then: Callable[[], None]) -> None:
        self._expected = {delivery.key: delivery for delivery in deliveries}
        self._then = then
        self.sent_to_ms = sent_to_ms

    def __len__(self) -> int:
        return len(self._expected)

    def take(self, delivery: Delivery) -> int:
        """The packet id as which the client has a delivery that comes again, 0 if it has not."""
        found = self._expected.get(key_of(delivery))
        if found is None or found.qos != delivery.qos:
            return 0
        del self._expected[found.key]
        if not self._expected:
            self._then()
        return found.packet_id


def key_of(delivery: Delivery) -> Key:
    return *delivery.place, delivery.pending.message.offered_us
