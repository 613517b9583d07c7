"""Telling the sender of a message that the receiver of its conversation is gone (R6).

At most once: the notice goes to Kafka when the next receiver is durable, just before that one is sent the message. A
home that is killed then tells nobody, and neither does one whose notice Kafka refuses; that is counted. Wills are
published exactly once, but a will is a record of its own from before. Here the message itself would have to be
remembered until Kafka has the notice. The new receiver, which is told in any case, can tell the sender as well.

The sender's gateway says whether the notice is allowed (:data:`schemas.envelope.ANSWERABLE_FLAG`): nobody may have the
platform publish where it may not publish itself. The notice lives no longer than the message.
"""

from gateway.counts import Counts
from gateway.shard.conversation_properties import receiver_gone
from gateway.shard.messages import Message
from gateway.shard.publishing import Publisher
from mqtt.codes import ReasonCode
from schemas.envelope import ANSWERABLE_FLAG


class ConversationNotices:
    """Of one shard; `publisher` is for the platform's own messages."""

    def __init__(self, publisher: Publisher, counts: Counts[str]) -> None:
        self._publisher = publisher
        self._counts = counts

    def tell(self, message: Message, conversation: str) -> None:
        """The message goes to another receiver than those before it in its conversation."""
        self._counts["conversations_restarted"] += 1
        notice = receiver_gone(message.properties, conversation) if ANSWERABLE_FLAG in message.flags else None
        if notice is not None:
            self._publisher.publish_notice(*notice, message.expires, self._sent)

    def _sent(self, reason: ReasonCode) -> None:
        word = "conversation_notices" if reason is ReasonCode.SUCCESS else "conversation_notices_lost"
        self._counts[word] += 1
