"""`$SYS/…` and `$feeds/…`: what the gateway tells about itself and about redundant feeds as topics, local to it. They
never go through Kafka or the router, have no route and no rows in the ledger, and nobody can publish to them.

A subscription to them is one like any other: in the session, its log and the shard's trie. Each value comes retained at
SUBSCRIBE, then whenever it is computed anew, at QoS 0; a client that takes nothing just then does without.
"""

from collections.abc import Iterator, Mapping

from gateway.shard.messages import Delivery, Message, PendingMessage
from gateway.shard.session import Session
from mqtt.properties import NO_PROPERTIES
from mqtt.topics import matches


class SystemTopics:
    """The latest value of each topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Message] = {}

    def put(self, values: Mapping[str, str], now_ms: int) -> list[Message]:
        """Takes the values of some topics; returns them as messages."""
        messages = [_message(topic, value, now_ms) for topic, value in values.items()]
        self._by_topic |= {message.topic: message for message in messages}
        return messages

    def remove(self, topic: str, now_ms: int) -> list[Message]:
        """The topic has no value any more; returns the message that says so, none if it had none."""
        return [] if self._by_topic.pop(topic, None) is None else [_message(topic, "", now_ms)]

    def matching(self, topic_filter: str) -> Iterator[Message]:
        """The latest value of every topic that matches."""
        return (m for topic, m in self._by_topic.items() if matches(topic_filter, topic))


def send_system(session: Session, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
    """Sends a value straight to a client, if it takes anything now."""
    link = session.link
    if link is not None and link.writable:
        pending = PendingMessage(message, session.shard, -1, 0, [])
        link.deliver(message, Delivery(session.client, pending, 0, retain, identifiers))


def _message(topic: str, value: str, now_ms: int) -> Message:
    return Message("", "", topic, value.encode(), 0, True, None, NO_PROPERTIES, -1, -1, now_ms)
