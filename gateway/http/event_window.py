"""Events that a stream has sent and that are not acknowledged: their ids, in order (G8).

Server-sent events have no acknowledgements. An event id also covers all events before it: a client that shows the id,
in `Last-Event-ID` or in an acknowledgement, has them all.
"""

import secrets
from collections import deque
from typing import NamedTuple

from gateway.http.attaching import acknowledge
from gateway.http.stream_events import EventId
from gateway.shard.messages import Delivery
from gateway.shard.session import Session
from gateway.shard.shard_home import ShardHome


class Sent(NamedTuple):
    """An event of QoS 1 or 2, with its number."""

    number: int
    delivery: Delivery


class StreamWindow:
    """The window of one session. It outlives streams and is as large as the session's window of packet ids.

    After a restart the gateway creates a new window with another `name`: ids of the old one acknowledge nothing, and
    its events are delivered again.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self._sent: deque[Sent] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, delivery: Delivery) -> EventId:
        """Records an event that is about to be sent; returns its id."""
        self._last += 1
        self._sent.append(Sent(self._last, delivery))
        return EventId(self.name, self._last)

    def knows(self, event_id: EventId) -> bool:
        """Whether the id belongs to this window, acknowledged or not."""
        return event_id.window == self.name and 0 < event_id.number <= self._last

    def acknowledge(self, home: ShardHome, session: Session, number: int) -> None:
        """Event `number` and all before it have arrived. Skips a packet id that now belongs to another message."""
        arrived = list[Delivery]()
        while self._sent and self._sent[0].number <= number:
            arrived.append(self._sent.popleft().delivery)
        acknowledge(home, session, arrived)

    def clear(self) -> None:
        """A new stream begins: unacknowledged events are sent again, with new ids."""
        self._sent.clear()
