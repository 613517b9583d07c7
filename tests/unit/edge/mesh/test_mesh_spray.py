"""Who gets how many copies, in which order, and how likely an agent is to meet an uplink (M7, M15, M19)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mesh.encounters import Encounters, EncounterSettings
from edge.mesh.spray import Candidate, PeerView, SprayPolicy, copies_to_give, in_order
from tests.unit.bundles.keys import bundle, header
from tests.unit.edge.mesh.contact_pair import carrier, meet

POLICY = SprayPolicy()


def given_copies(copies: int | None, peer: float, own: float, *, uplink: bool = False, name: str = "p") -> int | None:
    return copies_to_give(header(destination="@r"), copies, PeerView(name, uplink, peer), own, POLICY)


@pytest.mark.parametrize(("copies", "expected"), [(8, 4), (7, 3), (4, 2), (3, 0), (2, 0), (1, 0), (0, 0)])
def test_early_splits_go_to_anybody_and_the_last_ones_do_not(copies: int, expected: int) -> None:
    assert given_copies(copies, peer=0.1, own=0.2) == expected


def test_the_last_split_and_the_last_copy_go_to_a_better_peer() -> None:
    assert given_copies(2, peer=0.41, own=0.1) == 1
    assert given_copies(3, peer=0.0, own=0.0) == 1, "nobody knows anything yet"
    assert given_copies(1, peer=0.51, own=0.1) == 1
    assert given_copies(1, peer=0.49, own=0.1) == 0
    assert given_copies(0, peer=1.0, own=0.0) == 0


@pytest.mark.parametrize("copies", [8, 1, 0])
def test_who_can_deliver_gets_one_copy_always(copies: int) -> None:
    assert given_copies(copies, peer=0.0, own=1.0, uplink=True) == 1
    assert given_copies(copies, peer=0.0, own=1.0, name="r") == 1


def test_unlimited_copies_go_to_everybody() -> None:
    assert given_copies(None, peer=0.0, own=1.0) is None
    one, other = carrier("a", copies=0), carrier("b", copies=0)
    one.submit(bundle(), 0)
    meet(one, other)
    assert "Given" in meet(other, carrier("c", copies=3), 200).kinds(0)


@given(st.integers(0, 8), st.floats(0, 1), st.floats(0, 1))
def test_never_more_copies_than_there_are(copies: int, peer: float, own: float) -> None:
    given = given_copies(copies, peer, own)
    assert given is not None
    assert 0 <= given <= copies


def test_the_order_of_offers() -> None:
    def candidate(sequence: int, destination: str, remaining_s: int) -> Candidate:
        made = header(sequence, destination=destination)
        return Candidate(made.message_id, made, 1, remaining_s)

    candidates = [candidate(1, "@q", 10), candidate(2, "@r", 900), candidate(3, "@q", 5), candidate(4, "@r", 30)]
    found = in_order(candidates, PeerView("r", has_uplink=False, predictability=0.0))
    assert [one.header.sequence for one in found] == [4, 2, 3, 1]


def test_the_hop_limit_holds() -> None:
    """M7."""
    agents = [carrier(name, hops=2) for name in "abcd"]
    agents[0].submit(bundle(), 0)
    for one, other in pairwise(agents):
        meet(one, other)
    assert [len(agent) for agent in agents] == [1, 1, 1, 0]


def test_predictability_grows_with_meetings_and_fades() -> None:
    """RFC 6693, 2.1."""
    one = Encounters(EncounterSettings(encounter=0.5, transitivity=0.25, half_life_s=100))
    assert one.predictability(0) == 0
    one.met(has_uplink=True, predictability=0, now=0)
    one.met(has_uplink=True, predictability=0, now=0)
    assert one.predictability(0) == pytest.approx(0.75)
    assert one.predictability(100) == pytest.approx(0.375)
    other = Encounters()
    other.met(has_uplink=False, predictability=0.8, now=0)
    assert other.predictability(0) == pytest.approx(0.2)


def test_copies_given_and_kept_are_as_many_as_there_were() -> None:
    agents = [carrier("a"), carrier("b"), carrier("c")]
    agents[0].submit(bundle(), 0)
    for at, (one, other) in enumerate([(0, 1), (0, 2), (1, 2)]):
        meet(agents[one], agents[other], 100 + at)
    held = [agent.held(bundle().message_id) for agent in agents]
    assert sum(one.copies or 0 for one in held if one) == 8
