"""What another bearer does with the messages that MQTT has left in the outbox (G8)."""

from edge.client.outbox import Outbox
from edge.client.store import Recovered


def take_over(outbox: Outbox, found: Recovered) -> Recovered:
    """Without the QoS 2 messages that MQTT had released: a gateway has them, and only PUBREL was left to be sent.

    The gateway keeps the packet id of each QoS 2 message that MQTT has sent until PUBREL, which only MQTT can send. So
    these exchanges are kept as open ones. What has got its packet id since MQTT was connected last is not among them.
    """
    packet_ids = {message.sequence: message.packet_id for message in found.in_flight if message.qos == 2}
    released = dict.fromkeys(sequence for sequence, _ in found.released)
    if not found.session.is_taken_over:
        open_ids: list[int] = []
        if found.session.is_established:
            open_ids = [packet_ids[sequence] for sequence in (released | packet_ids)]  # released ones as PUBREC came
        outbox.taken_over(open_ids)
        found.open_ids = list(dict.fromkeys(found.open_ids + open_ids))
    for message in found.in_flight:
        if message.sequence in released:
            outbox.remove(message.sequence, message.size, waiting=False)
    found.in_flight = [message for message in found.in_flight if message.sequence not in released]
    return found
