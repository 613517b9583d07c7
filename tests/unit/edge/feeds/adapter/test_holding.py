"""Who writes to a slot, and who waits or is refused (S1, S2)."""

from edge.feeds.adapter.holding import Holding, Standing
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry import Registry
from feeds.registry_records import AdapterBeat, Assignment, RegistryKey
from schemas.feed_words import Slot

MINISEED = FeedSource(format=SourceFormat.MINISEED, name="src")
MODE_S = FeedSource(format=SourceFormat.MODE_S, name="src")
TIMEOUT_S = 0.6


class World:
    """A registry with a clock, and the view of the adapter `me` in the slot active."""

    def __init__(self, source: FeedSource = MINISEED, boot: int = 5) -> None:
        self.registry = Registry(TIMEOUT_S, 100, 1)
        self.holding = Holding(self.registry, "f", "me", "active", source, TIMEOUT_S)
        self.source, self.boot = source, boot
        self.now, self.seq = 0.0, 0
        self.others: dict[str, tuple[Slot, int, FeedSource, str]] = {}

    def say(self, name: str, slot: Slot, boot: int, source: FeedSource, state: str) -> None:
        self.seq += 1
        beat = AdapterBeat(
            boot=boot,
            seq=self.seq,
            slot=slot,
            state=state,
            at_us=0,
            machine="m",
            source=source,  # type: ignore[arg-type]
        )
        self.registry.apply(RegistryKey("adapter", "f", name), beat, self.now)

    def run(self, seconds: float, *, deaf: bool = False) -> Standing:
        """All beat meanwhile."""
        until = self.now + seconds
        while self.now < until:
            self.now = round(self.now + 0.2, 3)
            if not deaf:
                for name, (slot, boot, source, state) in self.others.items():
                    self.say(name, slot, boot, source, state)
                self.say("me", "active", self.boot, self.source, self.holding.standing.state)
                self.holding.heard(self.now)
            self.holding.decide(self.now)
        return self.holding.standing


def test_it_listens_before_it_takes_a_free_slot() -> None:
    world = World()
    assert world.run(0.6).state == "waiting"
    assert world.run(0.6) == Standing("up")


def test_it_waits_for_the_holder_and_follows_it() -> None:
    world = World()
    world.others["other"] = "active", 9, MINISEED, "up"
    assert world.run(2) == Standing("waiting", "the adapter other writes to the slot active")
    assert world.holding.has_standby(world.now)
    del world.others["other"]
    assert world.run(0.4).state == "waiting"
    assert world.run(0.6) == Standing("up")


def test_of_two_that_claim_at_once_the_older_one_stays() -> None:
    world = World()
    world.run(1)
    world.others["other"] = "active", 3, MINISEED, "up"
    assert world.run(0.4).state == "waiting"
    younger = World()
    younger.run(1)
    younger.others["other"] = "active", 7, MINISEED, "up"
    assert younger.run(1).state == "up"


def test_no_pair_is_refused_with_the_reason_and_one_alone_may_go_on() -> None:
    """S2: raw Mode S has no numbers, so the second adapter is refused until the first one is gone."""
    world = World(MODE_S)
    world.others["other"] = "backup", 3, MODE_S, "up"
    standing = world.run(2)
    assert standing.state == "refused"
    assert "Mode S has no sequence numbers" in standing.reason
    del world.others["other"]
    assert world.run(1.2) == Standing("up")
    world.others["other"] = "backup", 9, MODE_S, "up"
    assert world.run(1).state == "up", "the one that came later gives way"


def test_a_pair_is_a_pair_and_one_acts() -> None:
    world = World()
    world.others["other"] = "backup", 3, MINISEED, "up"
    assert world.run(2) == Standing("up")
    assert world.holding.is_acting(world.now)
    assignment = Assignment(active="backup", revision=1, reason="", by="x", at_us=0)
    world.registry.apply(RegistryKey("assignment", "f"), assignment, world.now)
    assert not world.holding.is_acting(world.now)
    del world.others["other"]
    world.run(1)
    assert world.holding.is_acting(world.now), "nobody else is there"


def test_who_hears_nothing_decides_nothing() -> None:
    """Cut off from the topic all others seem dead: that is no reason to take their slot, nor to leave one's own."""
    waiting = World()
    waiting.others["other"] = "active", 3, MINISEED, "up"
    waiting.run(2)
    assert waiting.run(60, deaf=True).state == "waiting"
    assert waiting.run(2).state == "waiting"
    holding = World()
    holding.run(2)
    assert holding.run(60, deaf=True).state == "up"
    assert holding.run(2).state == "up"


def test_after_a_pause_it_begins_anew() -> None:
    world = World()
    world.run(2)
    world.others["other"] = "active", 9, MINISEED, "up"
    world.holding.restart()
    assert world.run(2).state == "waiting", "the other one has taken the slot meanwhile"
