"""Who is alive: progress in the log, links, and an observer's own stalls (Q6, G6)."""

import pytest

from gateway.cluster.life import (
    Claimed,
    Heard,
    Life,
    LinkEnded,
    LinkHeard,
    Passed,
    Redial,
    Redialled,
    RedialResult,
)
from gateway.cluster.timings import LifeTimings
from schemas.leases import Claimant
from schemas.members import GatewayLoad, MemberState

ME, OTHER = Claimant("me", 5), Claimant("other", 7)


class Observer:
    """Time passes in steps of 50 ms; every 200 ms the observer reads a record of its own, and of the other if it
    writes."""

    def __init__(self) -> None:
        self.life = Life(ME, LifeTimings())
        self.now = 0.0
        self.seq = 0
        self.steps = 0

    def passes(self, seconds: float, *, other: bool = True, me: bool = True, link: bool = False) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self.steps += 1
            self.life.step(Passed(), self.now)
            if self.steps % 4 == 0:
                self.seq += 1
                if me:
                    self.hear(ME)
                if other:
                    self.hear(OTHER)
                if link:
                    self.life.step(LinkHeard("other"), self.now)

    def hear(self, of: Claimant, state: MemberState = "up", **more: bool) -> None:
        self.life.step(Heard(of.name, of.boot, self.seq, state, "z", GatewayLoad(cpu=0.5), **more), self.now)

    def verdict(self, of: Claimant = OTHER) -> str:
        return self.life.verdict(of, self.now)


@pytest.fixture
def observer() -> Observer:
    found = Observer()
    found.passes(1.0)
    assert found.verdict() == "alive"
    return found


@pytest.mark.parametrize("link", [False, True])
def test_no_record_for_600_ms_is_suspect_whether_or_not_the_link_is_alive(observer: Observer, link: bool) -> None:
    observer.passes(0.5, other=False, link=link)
    assert observer.verdict() == "alive"
    observer.passes(0.3, other=False, link=link)
    assert observer.verdict() == "suspect"
    assert observer.life.has_link("other", observer.now) == link
    observer.passes(0.2)
    assert observer.verdict() == "alive", "records come again"


def test_a_silent_link_is_no_death_while_records_come(observer: Observer) -> None:
    observer.passes(0.2, link=True)
    observer.passes(3.0)
    assert not observer.life.has_link("other", observer.now)
    assert observer.verdict() == "alive"


def test_an_observer_that_reads_nothing_accuses_nobody_and_begins_anew(observer: Observer) -> None:
    observer.passes(5.0, other=False, me=False)
    assert observer.verdict() == "alive"
    observer.passes(0.5, other=False)
    assert observer.verdict() == "alive", "it has read for less than 600 ms"
    observer.passes(0.5, other=False)
    assert observer.verdict() == "suspect"


@pytest.mark.parametrize(("result", "verdict"), [("refused", "dead"), ("timeout", "alive"), ("connected", "alive")])
def test_the_end_of_a_link_is_looked_into_once(observer: Observer, result: Redialled, verdict: str) -> None:
    assert observer.life.step(LinkEnded("other"), observer.now) == [Redial("other")]
    assert observer.life.step(LinkEnded("other"), observer.now) == [], "it is being redialled"
    assert observer.verdict() == "alive", "losing a link is not death"
    observer.life.step(RedialResult("other", result), observer.now)
    assert observer.verdict() == verdict
    assert observer.life.step(LinkEnded("nobody"), observer.now) == []


def test_a_link_to_another_process_proves_nothing(observer: Observer) -> None:
    """Its successor, or its predecessor, may listen at another address."""
    life, before, other = observer.life, OTHER.boot - 1, OTHER.boot
    assert life.step(LinkEnded("other", before), observer.now) == []
    life.step(LinkHeard("other", before), observer.now)
    assert not life.has_link("other", observer.now)
    assert life.step(LinkEnded("other", other), observer.now) == [Redial("other")]
    life.step(RedialResult("other", "refused", before), observer.now)
    assert observer.verdict() == "alive"
    assert life.step(LinkEnded("other", other), observer.now) == [Redial("other")], "the next one is looked into"
    life.step(RedialResult("other", "refused", other), observer.now)
    assert observer.verdict() == "dead"
    life.step(LinkHeard("other", before), observer.now)
    assert observer.verdict() == "dead"


def test_after_a_refusal_only_later_records_or_a_link_prove_life(observer: Observer) -> None:
    def refuse() -> None:
        observer.life.step(LinkEnded("other"), observer.now)
        observer.life.step(RedialResult("other", "refused"), observer.now)

    refuse()
    observer.passes(0.4)
    assert observer.verdict() == "dead", "records that were on their way"
    observer.passes(0.6)
    assert observer.verdict() == "alive"
    refuse()
    observer.life.step(LinkHeard("other"), observer.now)
    assert observer.verdict() == "alive"
    refuse()
    observer.hear(Claimant("other", 8))
    assert observer.verdict() == "dead"
    assert observer.verdict(Claimant("other", 8)) == "alive"


def test_a_superseded_boot_is_dead_for_everyone(observer: Observer) -> None:
    observer.hear(Claimant("other", 8), state="joining")
    assert observer.verdict() == "dead"
    observer.hear(OTHER)
    assert observer.verdict() == "dead"
    assert observer.verdict(Claimant("me", 4)) == "dead"
    assert observer.verdict(ME) == "alive"


def test_a_last_word_counts_even_for_an_observer_that_stood_still(observer: Observer) -> None:
    observer.now += 0.5
    observer.seq += 1
    observer.hear(OTHER, state="gone")
    assert observer.verdict() == "dead"


def test_an_observer_that_stood_still_trusts_no_silence_for_a_second(observer: Observer) -> None:
    """Lifeguard. A refused connection is not silence."""
    observer.passes(0.55, other=False)
    observer.now += 0.16
    observer.passes(0.7, other=False)
    assert observer.verdict() == "alive"
    assert not observer.life.is_trusting(observer.now)
    observer.passes(0.5, other=False)
    assert observer.verdict() == "suspect"
    observer.now += 0.2
    observer.passes(0.2)
    observer.life.step(LinkEnded("other"), observer.now)
    observer.life.step(RedialResult("other", "refused"), observer.now)
    assert observer.verdict() == "dead"


def test_a_claim_is_progress_of_a_process_not_heard_of_yet(observer: Observer) -> None:
    new = Claimant("new", 1)
    assert observer.verdict(new) == "suspect", "it has had 600 ms to be heard of"
    observer.life.step(Claimed(new), observer.now)
    assert observer.verdict(new) == "alive"
    observer.passes(0.8)
    assert observer.verdict(new) == "suspect"


def test_only_members_that_are_up_and_alive_are_candidates(observer: Observer) -> None:
    assert [member.name for member in observer.life.candidates(observer.now)] == ["me", "other"]
    assert observer.life.candidates(observer.now)[1] == ("other", "z", 1.0, 0.5)
    observer.seq += 1
    observer.hear(OTHER, state="draining")
    assert [member.name for member in observer.life.candidates(observer.now)] == ["me"]


def test_what_was_on_the_topic_before_proves_no_life() -> None:
    observer = Observer()
    observer.hear(OTHER, is_old=True)
    observer.passes(0.4, other=False)
    assert [member.name for member in observer.life.candidates(observer.now)] == ["me"]
    observer.passes(0.6, other=False)
    assert observer.verdict() == "suspect"


def test_names_are_bounded() -> None:
    life = Life(ME, LifeTimings(), limit=3)
    for number in range(9):
        life.step(Heard(f"n{number}", 1, 1, "up"), float(number) / 10)
    assert [member.name for member in life.candidates(0.8)] == ["n6", "n7", "n8"]
