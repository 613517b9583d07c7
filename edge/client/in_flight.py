"""Messages that have a packet id: they may have been sent, and nobody has answered yet (G8)."""

import msgspec

from edge.client.outbox import Outbox
from edge.client.store import Recovered
from mqtt.client_events import Published


class InFlight(msgspec.Struct, gc=False):
    """A message that has a packet id; `size` in bytes."""

    sequence: int
    topic: str
    qos: int
    size: int
    expires_s: float


class InFlightMessages:
    """`by_id` has them by packet id; the outbox follows."""

    def __init__(self, outbox: Outbox, found: Recovered) -> None:
        self._outbox = outbox
        self.by_id = {
            one.packet_id: InFlight(one.sequence, one.topic, one.qos, one.size, one.expires_s)
            for one in found.in_flight
        }

    def assigned(self, packet_id: int, message: InFlight) -> None:
        """A message is about to be sent under a packet id."""
        self.by_id[packet_id] = message
        self._outbox.assign(message.sequence, packet_id)

    def ended(self, event: Published) -> InFlight | None:
        """An exchange has ended; returns the message."""
        return self.forget(event.packet_id)

    def forget(self, packet_id: int) -> InFlight | None:
        """A message is no longer in flight; returns it."""
        message = self.by_id.pop(packet_id, None)
        if message is not None:
            self._outbox.remove(message.sequence, message.size, waiting=False)
        return message
