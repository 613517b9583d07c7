"""Two carriers with a contact between them, wired in memory; the link may be cut at any byte."""

from edge.mesh.carrier import Carrier
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Event, FirstReceiptsTaken, Received
from edge.mesh.limits import MeshLimits
from tests.unit.bundles.keys import originators, signers

EXCHANGES_MAX = 1_000


def carrier(name: str, **limits: float) -> Carrier:
    return Carrier(name, 7, originators, signers, MeshLimits(**limits))  # type: ignore[arg-type]


class MeshPair:
    """`events` are those of either side; `sent` all bytes that it has sent. `stores`: whether bundles become durable at
    once."""

    def __init__(self, one: Carrier, other: Carrier, now: float = 100.0, *, stores: bool = True) -> None:
        self.now, self.stores = now, stores
        self.carriers = (one, other)
        self.contacts = (Contact(one, now), Contact(other, now))
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self.sent = [b"", b""]

    def exchange(self, budget: int | None = None) -> "MeshPair":
        """Carries everything there and back, until nothing moves, or until `budget` bytes have arrived; then the link
        is cut."""
        for _ in range(EXCHANGES_MAX):
            moved = False
            for end in (0, 1):
                data = self.contacts[end].outgoing(self.now)
                self.sent[end] += data
                if budget is not None:
                    data, budget = data[:budget], budget - len(data[:budget])
                moved |= bool(data)
                self.take(1 - end, self.contacts[1 - end].receive(data, self.now))
                if budget == 0:
                    return self.cut()
            if not moved:
                return self
        raise AssertionError("they never stop talking")

    def take(self, end: int, events: list[Event]) -> None:
        self.events[end].extend(events)
        for event in events:
            if isinstance(event, Received) and self.stores:
                self.contacts[end].stored(event.bundle.message_id, self.now)
            elif isinstance(event, FirstReceiptsTaken) and self.stores:
                self.contacts[end].receipts_stored(self.now)

    def cut(self) -> "MeshPair":
        for end in (0, 1):
            self.take(end, self.contacts[end].eof())
        return self

    def kinds(self, end: int) -> list[str]:
        return [type(event).__name__ for event in self.events[end]]


def meet(one: Carrier, other: Carrier, now: float = 100.0) -> MeshPair:
    """A whole contact that ends without harm."""
    pair = MeshPair(one, other, now).exchange()
    assert not pair.contacts[0].closed, pair.contacts[0].closed
    assert not pair.contacts[1].closed, pair.contacts[1].closed
    return pair.cut()
