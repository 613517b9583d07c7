"""Events of a stream that are not acknowledged, across streams; no I/O (G8).

A gateway knows one acknowledgement: "this event and all before it". The application acknowledges each message for
itself. So `last` is the newest event before which, and with which, everything is done. With each new stream (after a
loss, or to change the subscriptions) the gateway sends unacknowledged events again under new ids; the message's id
tells them: what the application has, or has finished, is not given a second time.
"""

from collections import OrderedDict, deque
from typing import NamedTuple

from edge.client.event_stream import Received


class EventKey(NamedTuple):
    """A retained message comes again, with the same id, when somebody subscribes again."""

    message_id: str
    is_retained: bool


class _Event(NamedTuple):
    event_id: str
    key: EventKey


class UnacknowledgedEvents:
    """`last`: the id of the newest event to acknowledge, None if there is none yet. Remembers the `done_max` messages
    that were acknowledged last."""

    def __init__(self, done_max: int) -> None:
        self._done_max = done_max
        self._order: deque[_Event] = deque()  # of the present stream
        self._given: set[EventKey] = set()  # to the application, and not acknowledged
        self._done: OrderedDict[EventKey, None] = OrderedDict()
        self.last: str | None = None

    def begin_stream(self) -> None:
        """A new stream: its events have new ids."""
        self._order.clear()

    def received(self, received: Received) -> EventKey | None:
        """An event of QoS 1 or 2 has arrived; its key if the application shall have it."""
        key = EventKey(received.message_id, received.packet.retain)
        self._order.append(_Event(received.event_id, key))
        if key in self._given:
            return None
        if key in self._done and not key.is_retained:
            self._advance()
            return None
        self._given.add(key)
        return key

    def acknowledged(self, key: EventKey) -> None:
        """The application is done with a message. May be called again."""
        if key in self._given:
            self._given.remove(key)
            self._done[key] = None
            self._done.move_to_end(key)
            if len(self._done) > self._done_max:
                self._done.popitem(last=False)
            self._advance()

    def _advance(self) -> None:
        while self._order and self._order[0].key not in self._given:
            self.last = self._order.popleft().event_id
