"""The state of a connected session that its next home cannot read from Kafka (R5). Pure.

A session that outlives its connection is in the session log, and its messages are in Kafka. The rest is what belongs to
the present connection. Whoever takes it up checks that it is of the session that Kafka knows, and fits it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.shard.in_hand import DeliveryInHand, PacketId, key_of
from gateway.shard.session import Session
from mqtt.limits import PACKET_ID_MAX

Time = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class SessionState(msgspec.Struct, frozen=True):
    """`born_us`, `shard_epoch`: see :class:`gateway.shard.session_life.SessionLife`. `received`: deliveries that the
    client has received at QoS 2 and not completed, as (packet id, place). `reserved`: packet ids of those, and of
    earlier ones. `sent_to_ms`: see :class:`gateway.shard.session.Session`; None if something that was sent on an
    earlier connection waits to be sent again. `retained_sent`: until when, seconds since the epoch, live copies of
    messages, by id, are not sent."""

    born_us: Time
    shard_epoch: Time
    receive_maximum: PacketId
    last_packet_id: Annotated[int, Meta(ge=0, le=PACKET_ID_MAX)]
    sent_to_ms: Time | None
    in_hand: list[DeliveryInHand]
    received: list[tuple[PacketId, int, int]]
    reserved: list[PacketId]
    retained_sent: dict[str, float]


def export(session: Session) -> SessionState | None:
    """None if the next home could not go on exactly: the session has no record in the session log that outlives its
    connection, is a member of a share group, or is amid something."""
    if not session.persistent or session.ended or session.assignments is not None:
        return None
    if session.sending or session.in_hand is not None or session.subscribing or session.is_logging:
        return None
    in_flight = session.in_flight.values()
    if not all(delivery.sent for delivery in in_flight):
        return None
    in_hand = [
        DeliveryInHand(delivery.packet_id, delivery.qos, *key_of(delivery))
        for delivery in in_flight
        if not delivery.released and not delivery.finished
    ]
    received = [(delivery.packet_id, *delivery.place) for delivery in in_flight if delivery.released]
    if len({one.key for one in in_hand}) < len(in_hand) or len(in_hand) + len(received) < len(in_flight):
        return None
    is_sent_again = any(delivery.dup for delivery in (*session.queue, *session.tail))
    return SessionState(
        session.born_us,
        session.shard_epoch,
        session.receive_maximum,
        session.last_packet_id,
        None if is_sent_again else session.sent_to_ms,
        in_hand,
        received,
        sorted({*session.reserved, *(packet_id for packet_id, *_ in received)}),
        dict(session.retained_sent),
    )


def fits(session: Session, state: SessionState) -> bool:
    """Whether the state is of a session as a recovery has found it: connected at the end, and its exchanges at QoS 2 as
    they are in the session log."""
    if (session.born_us, session.shard_epoch) != (state.born_us, state.shard_epoch):
        return False
    if session.link is not None or session.disconnected_ms is not None or not session.persistent:
        return False
    known = {(record.packet_id, *record.place, record.released) for record in session.restored.values()}
    wanted = {(one.packet_id, one.partition, one.offset, False) for one in state.in_hand if one.qos == 2}
    wanted |= {(*received, True) for received in state.received}
    ids = [one.packet_id for one in state.in_hand] + [packet_id for packet_id, *_ in state.received]
    return wanted <= known and len(set(ids)) == len(ids)
