"""A peer that is enrolled and sends what it likes."""

from collections.abc import Iterator, Sequence

from bundles.bundle import Bundle
from edge.mesh.carrier import Carrier
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Closed, EndedBy, Event, FirstReceiptsTaken
from edge.mesh.contact_frames import (
    Accept,
    Bye,
    Certificates,
    Data,
    Decline,
    Frame,
    FrameBuffer,
    Hello,
    Offer,
    Ping,
    Pong,
    Reason,
    Receipts,
    Revocations,
    Stored,
    Summary,
    encode,
)
from tests.unit.bundles.keys import bundle, header, receipt
from tests.unit.edge.mesh.contact_pair import carrier

HELLO = Hello("x", 1, has_uplink=False, predictability=1.0, frame_bytes=65_536, bundle_bytes=10**6, revocations=0)
BEGINNING = (HELLO, Receipts((), more=False), Summary((), more=False))
ID = bundle().message_id
FRAMES: tuple[Frame, ...] = (
    *BEGINNING,
    Receipts((receipt(ID).encoded, receipt(bundle(2).message_id).encoded), more=True),
    Summary((ID, bundle(2).message_id), more=True),
    Offer(header(), 200, 8, 1, 30),
    Accept(ID),
    Decline(ID, Reason.FULL),
    Data(ID, 5, b"part"),
    Stored(ID),
    Bye("done"),
    Certificates((b"one", b"another")),
    Revocations(b"part", more=True),
    Ping(),
    Pong(),
)


class Hostile:
    """A peer made of frames, against a carrier that holds `held`."""

    def __init__(self, held: Sequence[Bundle] = (), **limits: float) -> None:
        self.carrier: Carrier = carrier("a", **limits)
        for one in held:
            self.carrier.submit(one, 0)
        self.contact = Contact(self.carrier, 100)
        self.answers = FrameBuffer(10**9)

    def beside(self, now: float = 100) -> "Hostile":
        """Another peer of the same carrier."""
        other = Hostile()
        other.carrier, other.contact = self.carrier, Contact(self.carrier, now)
        return other

    def sends(self, *frames: Frame, now: float = 100) -> list[Event]:
        events: list[Event] = []
        for frame in frames:
            events += self.contact.receive(encode(frame), now)
            self.answers.feed(self.contact.outgoing(now))
        return events

    def writes(self, data: bytes) -> Iterator[Event]:
        """In parts of which none has two frames with content; receipts are stored at once."""
        for at in range(0, len(data), 16):
            for event in self.contact.receive(data[at : at + 16], 100):
                yield event
                if isinstance(event, FirstReceiptsTaken):
                    self.contact.receipts_stored(100)

    def hears(self) -> list[Frame]:
        found = []
        while (frame := self.answers.next()) is not None:
            found.append(frame)
        return found

    def is_refused(self, detail: str) -> None:
        closed = self.contact.closed
        assert isinstance(closed, Closed)
        assert closed.by is EndedBy.FAULT
        assert detail in closed.detail
        assert isinstance(self.hears()[-1], Bye)
