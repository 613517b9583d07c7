"""What the session log says of a session, now (G8), and what neither it nor the spool has. Pure."""

from msgspec import UNSET

from gateway.shard.held_messages import ConversationKey
from gateway.shard.messages import GROUP_MARK, Delivery
from gateway.shard.session import Session
from gateway.shard.share_group import ShareGroup
from schemas.session_log import (
    KIND_OF_GROUP,
    ConversationRecord,
    GroupRecord,
    OutgoingRecord,
    SessionKey,
    SessionOpened,
    SettledRecord,
    Subscribed,
    WindowRecord,
)


def opened_record(session: Session) -> SessionOpened:
    will = session.will or next(iter(session.wills_on_way), None)  # until Kafka has it
    return SessionOpened(
        session.client,
        session.expiry_s,
        session.since,
        session.disconnected_ms,
        will,
        session.born_us,
        user=session.user,
        epoch=session.shard_epoch,
    )


def subscribed_record(session: Session) -> Subscribed:
    records = [s.record for s in session.subscriptions.values()]
    return Subscribed(records, bundles=session.retained_bundles or UNSET)


def window_record(session: Session) -> WindowRecord:
    """The durable part of both windows."""
    assignments = session.assignments
    waiting = session.queue if assignments is None else (*session.queue, *assignments.waiting)
    requeued = [e for e in waiting if e.packet_id] if session.kept_packet_ids else []
    sent: list[Delivery] = [*session.in_flight.values(), *requeued]
    outgoing = [OutgoingRecord(e.packet_id, *e.place, e.released) for e in sent if e.qos == 2]
    if session.restored:
        known = {o.place for o in outgoing}
        outgoing += [record for place, record in session.restored.items() if place not in known]
    outgoing += [] if assignments is None else assignments.records()
    own = (e for e in session.in_flight.values() if e.assigned is None)
    unsettled = {e.place for e in own if e.qos == 1 and session.settled.covers(e)}
    return WindowRecord(
        outgoing,
        sorted(session.inbound.received),
        session.inbound.stored_to,
        session.settled.record(),
        sorted(unsettled | session.put_back),
        sorted(session.dropped | session.dropped_before),
    )


def sent_from_memory(session: Session) -> list[Delivery]:
    """What was sent to the client at QoS 1 or 2, is not finished, and is not in the spool, nor with a share group."""
    sent = (*session.in_flight.values(), *(delivery for delivery in session.queue if delivery.packet_id))
    return [
        delivery for delivery in sent if delivery.row is None and not delivery.finished and delivery.assigned is None
    ]


def group_record(group: ShareGroup) -> GroupRecord:
    """What the session log says of a group, now."""
    at_qos_2 = [assigned.record for assigned in group.assigned.values() if assigned.qos == 2]
    in_hand = {a.delivery.place for a in group.assigned.values() if a.qos < 2 and group.settled.covers(a.delivery)}
    return GroupRecord(
        settled=group.settled.record(),
        open=sorted(in_hand | group.put_back),
        dropped=sorted(group.dropped | group.dropped_before),
        born_us=group.born_us,
        assigned=[*at_qos_2, *group.assigned_before.values()],
    )


def conversation_record(group: ShareGroup, record: ConversationRecord) -> GroupRecord:
    """What the session log says of a conversation of a group."""
    return GroupRecord(SettledRecord(), [], [], group.born_us, conversation=record)


def conversation_key(group: ShareGroup, key: ConversationKey) -> SessionKey:
    """Under which key; neither client ids nor user properties have a NUL (MQTT 5.0, 1.5.4)."""
    return SessionKey(GROUP_MARK.join((group.client, *key)), KIND_OF_GROUP)


def conversation_of_key(key: SessionKey) -> tuple[str, ConversationKey] | None:
    """The name of the group and the conversation; None if the key is that of a group's own record."""
    match key.client.split(GROUP_MARK):
        case ["", name, sender, conversation]:
            return name, ConversationKey(sender, conversation)
    return None
