"""What a node keeps in memory of a bundle, and of its own messages, against what they were made of (M2, M19)."""

from hypothesis import given
from hypothesis import strategies as st

from bundles.bundle import SEQUENCE_MAX, Bundle, Header, Kind
from bundles.id_table import raw_id
from bundles.receipt import Role
from edge.mesh.held import InMemory
from edge.node.held_on_disk import HeldOnDisk
from edge.node.own_messages import OwnMessages
from tests.unit.bundles.keys import header, receipt

uint64 = st.integers(1, 2**64 - 1)
sequences = st.integers(1, SEQUENCE_MAX)


@given(uint64, sequences, sequences, sequences, st.sampled_from(Kind), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_a_record_says_what_the_bundle_says(
    incarnation: int, sequence: int, low_water: int, ended_below: int, kind: Kind, hops: int, age_s: int
) -> None:
    low_water = min(low_water, sequence)
    marks = low_water, min(ended_below, low_water)
    made = Header("a", incarnation, sequence, "@b", kind, 2**64 - 1, 2**32 - 1, *marks)
    bundle = Bundle(made, b"sealed", bytes(64), hops, age_s)
    held, other = HeldOnDisk().of_bundle(bundle, 8, 1.5), InMemory(bundle, 8, 1.5)
    for name in ("header", "message_id", "sequence", "recipient", "hops", "size", "since", "copies", "free"):
        assert getattr(held, name) == getattr(other, name), name
    assert (held.age_s(9.0), held.remaining_s(9.0)) == (other.age_s(9.0), other.remaining_s(9.0))
    assert (held.bundle.header, held.bundle.hops, held.bundle.age_s) == (made, hops, age_s)


@given(st.lists(st.tuples(st.sampled_from("bc"), st.integers(0, 40)), max_size=60))
def test_the_low_water_mark_is_the_lowest_sequence_that_is_alive(steps: list[tuple[str, int]]) -> None:
    """M14: whatever the order in which messages end."""
    ids = {sequence: header(sequence).message_id for sequence in range(1, 62)}
    own, alive = OwnMessages(ids.__getitem__), dict[int, str]()
    for sequence, (recipient, ends) in enumerate(steps, 1):
        own.begin(recipient, sequence, raw_id(ids[sequence]))
        alive[sequence] = recipient
        if ends in alive:
            assert own.is_settled_by(receipt(ids[ends], alive[ends], Role.RECIPIENT))
            del alive[ends]
            assert own.end(ids[ends])
        assert not own.end("unknown")
        for name in "bc":
            new = Header("a", 7, 99, f"@{name}", Kind.ENVELOPE, 0, 9)
            assert own.low_water(new) == min((one for one, to in alive.items() if to == name), default=99)
    assert len(own) == len(alive)
