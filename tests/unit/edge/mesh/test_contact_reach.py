"""Whether a peer is reachable: two ends of a contact over a link with a delay and a rate, in virtual time (M3, M19)."""

import pytest

from edge.mesh.carrier import Carrier
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Closed, EndedBy, Event, Received
from tests.unit.bundles.keys import bundle
from tests.unit.edge.mesh.contact_pair import carrier

THRESHOLD = {"latency_s": 1.0, "probe_s": 10.0, "good_to_come_up": 2, "bad_to_go_down": 3}
STEP_S = 0.05


class SlowLink:
    """`delay_s` each way; `rate`: bytes a second each way. Bundles are stored at once. `is_cut`: nothing arrives any
    more, and nobody is told. Like a socket it takes a few bytes ahead, and asks for more when these are on their
    way."""

    def __init__(self, one: Carrier, other: Carrier, *, delay_s: float = 0.0, rate: float = 1e9) -> None:
        self.now, self.delay_s, self.rate, self.is_cut = 100.0, delay_s, rate, False
        self.contacts = (Contact(one, self.now), Contact(other, self.now))
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self._on_the_way: tuple[list[tuple[float, bytes]], list[tuple[float, bytes]]] = ([], [])
        self._free_at = [0.0, 0.0]

    def run(self, seconds: float) -> "SlowLink":
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            for end in (0, 1):
                self._take(end, self.contacts[end].check(self.now))
                self._arrive(end)
                self._send(end)
        return self

    def given(self, end: int) -> int:
        return sum(isinstance(event, Received) for event in self.events[1 - end])

    def _send(self, end: int) -> None:
        while self._free_at[end] <= self.now and (data := self.contacts[end].outgoing(self.now)):
            self._free_at[end] = max(self._free_at[end], self.now) + len(data) / self.rate
            if not self.is_cut:
                self._on_the_way[end].append((self._free_at[end] + self.delay_s, data))

    def _arrive(self, end: int) -> None:
        coming = self._on_the_way[1 - end]
        while coming and coming[0][0] <= self.now:
            self._take(end, self.contacts[end].receive(coming.pop(0)[1], self.now))

    def _take(self, end: int, events: list[Event]) -> None:
        self.events[end].extend(events)
        for event in events:
            if isinstance(event, Received):
                self.contacts[end].stored(event.bundle.message_id, self.now)


def one_with(count: int, size: int = 100, **limits: float) -> Carrier:
    found = carrier("a", **limits)
    for sequence in range(1, count + 1):
        found.submit(bundle(sequence, size=size), 0)
    return found


def test_a_peer_within_the_threshold_is_offered_bundles() -> None:
    """M3: it is measured first."""
    link = SlowLink(one_with(100, **THRESHOLD), carrier("b"), delay_s=0.2).run(8)
    assert link.given(0) == 100
    reach = link.contacts[0].reach
    assert reach.is_reachable
    assert reach.problem == ""
    assert reach.round_trip_s == pytest.approx(0.4, abs=3 * STEP_S)


def test_a_peer_above_the_threshold_is_offered_nothing() -> None:
    """M3: but what it offers is taken, and receipts go both ways, so the contact is of use."""
    slow, other = one_with(3, **THRESHOLD), carrier("b")
    other.submit(bundle(1, "b"), 0)
    link = SlowLink(slow, other, delay_s=0.6).run(120)
    assert (link.given(0), link.given(1)) == (0, 1)
    assert not link.contacts[0].reach.is_reachable
    assert "the round trip takes 1." in link.contacts[0].reach.problem
    assert link.contacts[0].closed is None
    held = slow.held(bundle(1).message_id)
    assert held is not None
    assert (held.copies, held.reserved) == (8, 0), "no copies were spent"


def test_without_a_threshold_latency_decides_nothing() -> None:
    """M19: it is measured all the same."""
    link = SlowLink(one_with(3), carrier("b"), delay_s=5.0).run(60)
    assert link.given(0) == 3
    assert link.contacts[0].reach.is_reachable
    assert link.contacts[0].reach.round_trip_s == pytest.approx(10.0, abs=3 * STEP_S)


def test_it_goes_down_after_several_late_answers_and_comes_up_after_several_in_time() -> None:
    """M3: hysteresis."""
    one = one_with(1, **THRESHOLD)
    link = SlowLink(one, carrier("b")).run(5)
    reach = link.contacts[0].reach

    def offered(sequence: int) -> bool:
        """Whether a new message is given in time."""
        one.submit(bundle(sequence), link.now)
        link.contacts[0].refresh(link.now)
        before = link.given(0)
        return link.run(4).given(0) > before

    assert offered(2)
    link.delay_s = 0.6
    link.run(2.5)
    assert reach.is_reachable, "one that is late changes nothing"
    link.run(5)
    assert not reach.is_reachable
    assert not offered(3)
    link.delay_s = 0.0
    while not reach.is_reachable:
        assert link.run(STEP_S).now < 200
    assert link.run(1).given(0) == 3, "what waited is given at once"
    assert offered(4)


def test_a_single_late_answer_changes_nothing() -> None:
    """M3."""
    link = SlowLink(one_with(1, **THRESHOLD), carrier("b")).run(9.9)
    link.delay_s = 0.6
    link.run(1.5)
    link.delay_s = 0.0
    reach = link.run(20).contacts[0].reach
    assert reach.is_reachable
    assert reach.round_trip_s is not None
    assert reach.round_trip_s > 0.1, "it was seen"


@pytest.mark.parametrize("limits", [THRESHOLD, {}], ids=["threshold", "none"])
def test_a_peer_that_falls_silent_is_given_up(limits: dict[str, float]) -> None:
    """M3: though it owes nothing but the answer to a ping; with a threshold it is offered nothing meanwhile."""
    one = one_with(1, **{**limits, "idle_s": 20.0, "probe_s": 10.0})
    link = SlowLink(one, carrier("b")).run(5)
    assert link.given(0) == 1
    link.is_cut = True
    one.submit(bundle(2), link.now)  # not offered before the measurement below is due
    link.run(10)
    assert link.contacts[0].reach.is_reachable is not bool(limits)
    if limits:
        link.contacts[0].refresh(link.now)
        assert not link.contacts[0].has_frames
        assert "not answered" in link.contacts[0].reach.problem
    closed = link.run(25).events[0][-1]
    assert isinstance(closed, Closed)
    assert closed.by is EndedBy.SILENCE


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
def test_a_busy_link_is_no_slow_one(both: bool) -> None:
    """M3: bundles that fill the link for longer than the threshold do not make the peer unreachable, though it is
    measured again and again meanwhile."""
    limits = {**THRESHOLD, "burst_bytes": 40_000.0, "probe_s": 3.0}
    one, other = one_with(40, 20_000, **limits), carrier("b", **limits)
    for sequence in range(1, 41 if both else 1):
        other.submit(bundle(sequence, "b", size=20_000), 0)
    link = SlowLink(one, other, delay_s=0.1, rate=20_000)  # a burst takes two seconds
    for _ in range(70):
        link.run(1)
        assert all(contact.reach.is_reachable for contact in link.contacts)
    assert link.given(0) == 40
    assert link.given(1) == (40 if both else 0)
