"""Records in the outbox how the MQTT session has changed, before the bytes that depend on it are written (G8).

Compares the session with what was recorded last, once for each block of bytes: sets of packet ids, bounded by the
window. So whatever the protocol core did is found, and nothing is written twice. The rules are those of
:mod:`mqtt.client_session`:

* a packet id is durable before its PUBLISH is sent; PUBREC is durable before PUBREL is sent
* an accepted inbound QoS 2 message is durable before its PUBREC is sent, and its end before PUBCOMP
* that MQTT has the session again, after another bearer, is durable before any PUBLISH is sent
"""

import asyncio

from edge.client.in_flight import InFlight, InFlightMessages
from edge.client.outbox import Outbox
from edge.client.store import Recovered
from mqtt.client_session import ClientSession, SessionState
from mqtt.packets import Publish


class SessionJournal(InFlightMessages):
    """`record` is the client's :data:`edge.driver.Journal`."""

    def __init__(self, session: ClientSession, outbox: Outbox, found: Recovered) -> None:
        super().__init__(outbox, found)
        self._session = session
        self._released = set(session.outbound.released)
        self._accepted = session.inbound.accepted_ids()
        self._is_established = session.is_established
        self._open_ids = set(found.open_ids)

    def forget(self, packet_id: int) -> InFlight | None:
        self._released.discard(packet_id)
        return super().forget(packet_id)

    def record(self) -> asyncio.Future[None] | None:
        """See :data:`edge.driver.Journal`."""
        session = self._session
        released = session.outbound.released
        if released.keys() - self._released:
            for packet_id, reason in released.items():
                if packet_id not in self._released:
                    self._released.add(packet_id)
                    self._outbox.release(self.by_id[packet_id].sequence, int(reason))
        accepted = session.inbound.accepted_ids()
        if accepted != self._accepted:
            held = set(accepted)
            for packet_id in held.symmetric_difference(self._accepted):
                self._outbox.inbound(packet_id, packet_id in held)
            self._accepted = accepted
        open_ids = session.outbound.open_ids.keys()
        if open_ids - self._open_ids:
            self._outbox.open_exchanges([packet_id for packet_id in open_ids if packet_id not in self._open_ids])
            self._open_ids.update(open_ids)
        if self._open_ids:
            for packet_id in self._open_ids - open_ids - self.by_id.keys():
                self._open_ids.remove(packet_id)
                self._outbox.end_exchange(packet_id)
        if session.is_established and not self._is_established:
            self._is_established = True
            self._outbox.established()
        return self._outbox.barrier()


def restore_session(found: Recovered, queue_max: int, queue_bytes_max: int) -> ClientSession:
    """The session as an earlier process left it. A server that has lost it gets unacknowledged messages as new ones."""
    packet_ids = {one.sequence: one.packet_id for one in found.in_flight}
    in_use = set(packet_ids.values())
    messages = [
        Publish(one.topic, one.payload, one.qos, one.retain, True, one.packet_id, one.properties)
        for one in found.in_flight
    ]
    state = SessionState(
        found.session.client_id,
        found.session.is_established,
        found.session.last_packet_id,
        messages,
        [(packet_ids[sequence], reason) for sequence, reason in found.released],
        found.accepted,
        [packet_id for packet_id in found.open_ids if packet_id not in in_use],
    )
    return ClientSession.restore(state, queue_max=queue_max, queue_bytes_max=queue_bytes_max, republish=True)
