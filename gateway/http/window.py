"""What a stream has sent and is not acknowledged: the ids of its events, in order (G8).

Server-sent events have no acknowledgements. An event id stands for all events before it too: whoever shows it, in
`Last-Event-ID` or in an acknowledgement, has them all.
"""

import secrets
from collections import deque
from typing import NamedTuple

from gateway.home.home import Home
from gateway.home.messages import Entry
from gateway.home.session import Session
from gateway.http.events import EventId
from mqtt.codes import ReasonCode


class Sent(NamedTuple):
    """An event of QoS 1 or 2, by its number."""

    number: int
    entry: Entry


class StreamWindow:
    """The window of one session; it outlives streams, and is as large as the session's window of packet ids.

    After a restart of the gateway there is a new one, with another `name`: ids of the earlier one acknowledge nothing,
    and what they stood for comes again.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self._sent: deque[Sent] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, entry: Entry) -> EventId:
        """An event is about to be sent; the id it gets."""
        self._last += 1
        self._sent.append(Sent(self._last, entry))
        return EventId(self.name, self._last)

    def knows(self, event_id: EventId) -> bool:
        """Whether the id is one of this window's, acknowledged or not."""
        return event_id.window == self.name and 0 < event_id.number <= self._last

    def acknowledge(self, home: Home, session: Session, number: int) -> None:
        """Event `number` and all before it have arrived. A packet id that is another message's by now is left alone."""
        while self._sent and self._sent[0].number <= number:
            entry = self._sent.popleft().entry
            if not session.has_in_hand(entry):
                continue
            if entry.qos == 1:
                home.acknowledged(session, entry.packet_id)
            else:
                home.received(session, entry.packet_id, ReasonCode.SUCCESS)
        home.flush()

    def clear(self) -> None:
        """A new stream begins: what is left is sent again, with new ids."""
        self._sent.clear()
