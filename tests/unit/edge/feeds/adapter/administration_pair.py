"""Two adapters in memory: a topic, the log of each slot, crashes, a switch, and wrong views of who is alive."""

from collections.abc import Callable
from dataclasses import dataclass, field

from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.administrative_items import View, Write
from feeds.registry_records import SLOTS, AdministrativeRequest, AdministrativeResult, AnnouncementRecord, RegistryKey
from feeds.synchronise import Announcement, SynchroniseSettings
from schemas.feed_words import Slot

FEED, STREAM = "f", "src@0"
KEEP_S = 1_000.0
Place = tuple[int, int]


@dataclass
class Side:
    """One adapter. `log`: what its slot has, (number, part, payload); `topic` is shared."""

    name: str
    slot: Slot
    topic: list[Write]
    settings: SynchroniseSettings
    log: list[tuple[int, int, bytes]] = field(default_factory=list)
    unsent: list[Write] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=lambda: {STREAM: 0})
    boot: int = 0
    read: int = 0
    thinks_other_is_there: bool = True
    preferred: Callable[[], Slot] = lambda: SLOTS[0]
    other_last: Callable[[], int] = lambda: 0
    has_ended: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.start()

    def start(self, lost: int = 0) -> None:
        """A new process: it reads the topic from its beginning, and its slot's log, which lacks the `lost` last records
        that the earlier process had sent."""
        self.boot += 1
        del self.log[len(self.log) - min(lost, len(self.log)) :]
        self.administration = Administration(FEED, self.name, self.settings, KEEP_S)
        self.read, self.unsent = 0, []
        self.last = {STREAM: max([number for number, part, _ in self.log if not part], default=0)}
        self.receive(len(self.topic))
        self.administration.activate(self.last, {(STREAM, number, part) for number, part, _ in self.log if part})

    def receive(self, count: int) -> None:
        for key, record in self.topic[self.read : self.read + count]:
            self.administration.apply(key, record, self.now)
        self.read = min(len(self.topic), self.read + count)

    def work(self) -> None:
        """It reads all there is, and says what follows."""
        self.receive(len(self.topic))
        self.step()
        self.say()

    def step(self) -> None:
        steps = self.administration.step(self.view(), self.now)
        self.unsent += steps.writes
        self._write(steps.overdue)

    def say(self) -> None:
        """What it has said reaches the topic."""
        self.topic += self.unsent
        self.unsent = []

    def advance(self) -> None:
        """The next message of the source."""
        number = self.last[STREAM] = self.last[STREAM] + 1
        due = self.administration.advance(STREAM, number)
        self._write(due.before if due else ())
        self.log.append((number, 0, b""))
        self._write(due.after if due else ())

    def view(self) -> View:
        is_acting = self.preferred() == self.slot or not self.thinks_other_is_there
        slots: dict[str, Slot] = {"a": "active", "b": "backup"}
        return View(
            slot=self.slot,
            boot=self.boot,
            is_acting=is_acting,
            is_other_held=self.thinks_other_is_there,
            slot_of=slots.get,
            lead=lambda _: 3,
            other_last={STREAM: self.other_last()},
            has_ended=self.has_ended,
        )

    def _write(self, announcements: "list[Announcement] | tuple[Announcement, ...]") -> None:
        self.log += [(one.after, one.part, one.payload) for one in announcements]


class Pair:
    """Both adapters, `a` in the slot active and `b` in backup."""

    def __init__(self, settings: SynchroniseSettings) -> None:
        self.topic: list[Write] = []
        self.preferred: Slot = "active"
        self.sides = [
            Side("a", "active", self.topic, settings, preferred=lambda: self.preferred),
            Side("b", "backup", self.topic, settings, preferred=lambda: self.preferred),
        ]
        for side, other in zip(self.sides, reversed(self.sides), strict=True):
            side.other_last = lambda other=other: other.last[STREAM]  # type: ignore[misc]
        self.requested = 0

    def request(self, lead: int | None = None) -> None:
        self.requested += 1
        record = AdministrativeRequest(stream=STREAM, payload=b"%d" % self.requested, lead=lead, by="x", at_us=0)
        self.topic.append((RegistryKey("request", FEED, f"id-{self.requested}"), record))

    def settle(self) -> None:
        """Everybody is alive, and goes on until nothing more follows."""
        for side in self.sides:
            side.thinks_other_is_there = True
        for _ in range(40):
            for side in self.sides:
                side.now += 1.0
                side.work()
                side.advance()

    def places(self) -> dict[Place, set[bytes]]:
        """Of administrative messages, in either log: what is there."""
        found: dict[Place, set[bytes]] = {}
        for side in self.sides:
            for number, part, payload in side.log:
                if part:
                    found.setdefault((number, part), set()).add(payload)
        return found

    def results(self) -> dict[bytes, list[AdministrativeResult]]:
        found: dict[bytes, list[AdministrativeResult]] = {}
        for key, record in self.topic:
            if isinstance(record, AdministrativeResult):
                found.setdefault(key.name.removeprefix("id-").encode(), []).append(record)
        return found

    def announcements(self) -> list[AnnouncementRecord]:
        return [record for _, record in self.topic if isinstance(record, AnnouncementRecord)]
