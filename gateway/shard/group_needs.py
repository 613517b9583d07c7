"""What share groups need of the rest of their shard (MQTT 5.0, 4.8.2; R6)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.shard.held_messages import ConversationKey
from gateway.shard.messages import Delivery, Outcome
from gateway.shard.session import Session
from gateway.shard.share_group import ShareGroup
from schemas.session_log import ConversationRecord


class GroupQueues(Protocol):
    """What groups need of whoever delivers in a shard (:class:`gateway.shard.delivery.Deliverer`)."""

    def load(self, session: Session) -> None:
        """Begins to load the backlog, unless it is being done."""
        ...

    def wake(self, session: Session) -> None:
        """There may be something to send by the next flush."""
        ...

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """One recipient is finished with a message."""
        ...

    def is_expired(self, delivery: Delivery) -> bool:
        """Whether the message's time is over."""
        ...

    def drop_qos0(self, session: Session) -> None:
        """Nobody can be reached: what waits at QoS 0 is not delivered."""
        ...

    def end(self, session: Session) -> None:
        """What the group still had to get ends."""
        ...


class GroupLog(Protocol):
    """Where the records of groups are made durable (:class:`gateway.shard.log_writer.SessionLogWriter`)."""

    def windows(self, session: Session, then: Callable[[], None]) -> None:
        """Writes a group's record as it is now; calls `then` once that is durable."""
        ...

    def ended(self, session: Session, then: Callable[[], None] | None = None, kinds: Sequence[str] = ()) -> None:
        """Ends the records of `kinds`; calls `then` once that is durable."""
        ...

    def conversation(
        self,
        group: ShareGroup,
        key: ConversationKey,
        record: ConversationRecord | None,
        then: Callable[[], None] | None,
    ) -> None:
        """Writes which member has a conversation, None if it is over; calls `then` once that is durable."""
        ...
