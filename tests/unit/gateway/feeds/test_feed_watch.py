"""Gateways that follow the topic feeds in any interleaving, with any delays, agree on the assignment (S1)."""

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from feeds.registry_records import AdapterBeat, Assignment, RegistryKey, RegistryRecord
from gateway.feeds.changes import Difference
from gateway.feeds.table import FeedTable
from gateway.feeds.watch import FeedWatch, Look
from schemas.feed_settings import FeedsSettings
from schemas.feed_words import Slot
from schemas.settings import process_settings
from tests.unit.feeds.feed_beats import beat

FEED = "f"
SETTINGS: FeedsSettings = process_settings({"WAYSTATION_FEEDS__FAILBACK": "when_back"}).feeds
Entry = tuple[RegistryKey, RegistryRecord | None]
ASSIGNMENT = RegistryKey("assignment", FEED)


class Topic:
    """The log, and what is on its way to it from each gateway, in the order of each."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Entry]] = []
        self.end = 0

    def append(self, entry: Entry) -> None:
        self.entries.append((self.end, entry))
        self.end += 1

    def compact(self) -> None:
        last = {entry[0]: offset for offset, entry in self.entries}
        self.entries = [one for one in self.entries if last[one[1][0]] == one[0]]


class FollowingGateway:
    """One gateway: its table and watch, its position, and what it has sent."""

    def __init__(self, topic: Topic, seed: int, now: float) -> None:
        self.topic = topic
        self.table = FeedTable(SETTINGS)
        self.watch = FeedWatch(self.table, SETTINGS, Random(seed))
        self.position = 0
        self.sent: list[Assignment] = []
        self.winners: dict[int, Assignment] = {}
        self.changes: list[Difference] = []
        self.read(None)
        self.look(now)

    def read(self, now: float | None, most: int = 1_000) -> None:
        found = [one for one in self.topic.entries if one[0] >= self.position][:most]
        changed = False
        for offset, (key, record) in found:
            self.position = offset + 1
            changed |= now is not None and self.watch.changes(key, record, now)
            applied = self.table.apply(key, record, now, offset)
            if isinstance(record, Assignment) and applied.won:
                assert record.revision not in self.winners, "one assignment a revision"
                self.winners[record.revision] = record
        if now is not None and changed:
            self.look(now)

    def look(self, now: float) -> None:
        look: Look = self.watch.look(FEED, now)
        self.changes += look.changes
        if look.switch is not None:
            active, revision, reason, automatic = look.switch
            self.sent.append(
                Assignment(
                    active=active, revision=revision, reason=reason, by=str(id(self)), at_us=0, automatic=automatic
                )
            )
        elif look.again is not None:
            self.sent.append(msgspec.structs.replace(look.again))  # what is read is another object

    def timer(self, now: float) -> None:
        for feed in self.watch.late(now):
            assert feed == FEED
            self.look(now)

    def switch(self, slot: Slot) -> None:
        known = self.table.registry.assignment(FEED)
        revision = 0 if known is None else known.revision
        self.sent.append(Assignment(active=slot, revision=revision + 1, reason="", by=str(id(self)), at_us=1))

    def store_one(self) -> None:
        if self.sent:
            self.topic.append((ASSIGNMENT, self.sent.pop(0)))

    @property
    def assigned(self) -> Assignment | None:
        return self.table.registry.assignment(FEED)


gateways = st.integers(0, 1)
slots = st.sampled_from(["active", "backup"])
actions = st.one_of(
    st.tuples(st.just("beat"), slots),
    st.tuples(st.just("wait"), st.sampled_from([0.05, 0.2, 0.7, 61.0])),
    st.tuples(st.just("read"), gateways, st.integers(1, 3)),
    st.tuples(st.just("store"), gateways),
    st.tuples(st.just("switch"), gateways, slots),
    st.tuples(st.just("restart"), gateways),
    st.just(("compact",)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(actions, max_size=60), st.integers(0, 1000))
def test_two_gateways_agree_whatever_the_interleaving(steps: list[tuple[object, ...]], seed: int) -> None:
    """S1: of each revision one assignment counts, the same for both; and, once all is read and repaired, the same for
    a gateway that reads the compacted topic from its beginning."""
    topic, now, seq = Topic(), 1_000.0, 0
    here = [FollowingGateway(topic, seed + number, now) for number in range(2)]
    for step in steps:
        match step:
            case ("beat", slot):
                seq += 1
                topic.append((RegistryKey("adapter", FEED, str(slot)), beat(slot, 1, seq)))  # type: ignore[arg-type]
            case ("wait", float(seconds)):
                now += seconds
                for gateway in here:
                    gateway.timer(now)
            case ("read", int(number), int(most)):
                here[number].read(now, most)
            case ("store", int(number)):
                here[number].store_one()
            case ("switch", int(number), slot):
                here[number].switch(slot)  # type: ignore[arg-type]
            case ("restart", int(number)):
                # A gateway that is killed loses what it has sent and Kafka has not stored.
                here[number] = FollowingGateway(topic, seed + 7 + number, now)
            case ("compact",) if all(one.position == topic.end for one in here) and not _needs_repair(here):
                topic.compact()
    _settle(topic, here, now)
    _agree(here)
    topic.compact()
    late = FollowingGateway(topic, seed + 99, now)
    assert late.assigned == here[0].assigned
    for gateway in here:
        assert gateway.table.overwritten(FEED) is None


def _needs_repair(here: list[FollowingGateway]) -> bool:
    """Compaction is slow: minutes, where a repair takes less than a second."""
    return any(one.table.overwritten(FEED) is not None for one in here)


def _settle(topic: Topic, here: list[FollowingGateway], now: float) -> None:
    """Everything is stored and read, and no beats come, until nothing more is written."""
    for _ in range(20):
        now += 5.0
        for gateway in here:
            while gateway.sent:
                gateway.store_one()
        for gateway in here:
            gateway.read(now)
            gateway.timer(now)
    assert not any(gateway.sent for gateway in here)


def _agree(here: list[FollowingGateway]) -> None:
    one, other = here
    assert one.assigned == other.assigned
    for revision in one.winners.keys() & other.winners.keys():
        assert one.winners[revision] == other.winners[revision]


def test_an_adapter_that_dies_is_noticed_by_the_clock_alone() -> None:
    """S1: no further record is needed; then the stream is switched once, and the changes say so in order."""
    topic, now = Topic(), 100.0
    gateway = FollowingGateway(topic, 1, now)
    seq = 0

    def beats(*slots: Slot) -> None:
        nonlocal seq
        seq += 1
        for slot in slots:
            topic.append((RegistryKey("adapter", FEED, slot[0]), beat(slot, 1, seq)))

    for _ in range(5):
        beats("active", "backup")
        gateway.read(now)
        now += 0.2
    assert [one.kind for one in gateway.changes] == ["adapter_came", "adapter_came", "redundant"]
    gateway.changes.clear()
    for _ in range(10):
        beats("backup")
        gateway.read(now)
        gateway.store_one()
        due = gateway.watch.due()
        assert due is not None
        now += 0.2
        if due <= now:
            gateway.timer(now)
    gateway.read(now)
    assert [(one.kind, one.adapter) for one in gateway.changes] == [
        ("adapter_died", "a"),
        ("single", ""),
        ("switched", ""),
    ]
    assert gateway.assigned is not None
    assert (gateway.assigned.active, gateway.assigned.revision) == ("backup", 1)


def test_a_heartbeat_that_says_nothing_new_costs_no_look() -> None:
    gateway = FollowingGateway(Topic(), 1, 0.0)
    key = RegistryKey("adapter", FEED, "a")
    looks = []
    for number in range(5):
        record: AdapterBeat = beat("active", 1, number, state="ended" if number == 4 else "up")
        now = 0.2 * number
        looks.append(gateway.watch.changes(key, record, now))
        gateway.table.apply(key, record, now, number)
    assert looks == [True, False, False, False, True]
