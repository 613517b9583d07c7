"""What another bearer has left in the outbox."""

from edge.client.outbox import Outbox
from edge.client.store import Recovered


def without_released(outbox: Outbox, found: Recovered) -> Recovered:
    """Without the QoS 2 messages that MQTT had released: a gateway has them, and only PUBREL was left to be sent."""
    released = {sequence for sequence, _ in found.released}
    for message in found.in_flight:
        if message.sequence in released:
            outbox.remove(message.sequence, message.size, waiting=False)
    found.in_flight = [message for message in found.in_flight if message.sequence not in released]
    return found
