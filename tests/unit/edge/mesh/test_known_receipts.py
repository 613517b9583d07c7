"""What is kept of receipts in memory: bounded, whatever comes, and complete for each peer (M8, M12, M19)."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bundles.receipt import Role
from edge.mesh.known_receipts import OURS, InMemory, KnownReceipts
from tests.unit.bundles.keys import header, receipt
from tests.unit.edge.mesh.contact_pair import MeshPair, carrier

PEERS = [OURS, ("p", 1), ("q", 2)]
IDS = [header(number).message_id for number in range(1, 41)]
ALL = {
    (number, role): receipt(IDS[number], "gateway" if role is Role.GATEWAY else "b", role)
    for number in range(40)
    for role in (Role.RECIPIENT, Role.GATEWAY)
}
ROLES = {one.encoded: one.role for one in ALL.values()}


class Counted(InMemory):
    """Knows how many there are."""

    def __len__(self) -> int:
        return len(self._known)


def newer_of_recipient(known: KnownReceipts, number: int) -> int:
    return sum(one.role is Role.RECIPIENT for one in known.numbered(number, 100))


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 39), st.sampled_from([Role.RECIPIENT, Role.GATEWAY]), st.integers(0, 2))),
)
def test_it_is_bounded_and_says_what_is_new(most: int, steps: list[tuple[int, Role, int]]) -> None:
    """Entries in memory and on disk never exceed the limit, the newest are there, and a peer gets each that others
    have brought since."""
    stored = Counted()
    known = KnownReceipts(most, 10, stored)
    newest: dict[str, tuple[bytes, tuple[str, int], int]] = {}
    for number, role, peer in steps:
        one = ALL[number, role]
        is_new = known.record(one.message_id) is None or newest[one.message_id][0] != one.encoded
        assert known.has(one.encoded) is not is_new
        assert known.add(one, PEERS[peer]) is is_new
        if is_new:
            newest.pop(one.message_id, None)
            newest[one.message_id] = one.encoded, PEERS[peer], known.number
        assert len(known) == len(stored) <= most
        for message_id, (encoded, source, at) in newest.items():
            record = known.record(message_id)
            if record is not None:
                assert (record.source, record.number, known.encoded([message_id])) == (source, at, [encoded])
            else:
                is_old = at <= known.number - most + max(1, most // 50)
                assert is_old or (ROLES[encoded] is Role.RECIPIENT and newer_of_recipient(known, at) >= most // 8)
        for asking in PEERS:
            expected = [
                (at, message_id)
                for message_id, (_, source, at) in newest.items()
                if source != asking and known.record(message_id) is not None
            ]
            assert list(known.ids_after(0, asking)) == expected
    assert [one.number for one in known.numbered(0, 5)] == [number for number, _ in known.ids_after(0, ("z", 9))][:5]


def test_who_signs_for_messages_that_nobody_knows_crowds_out_only_its_own() -> None:
    """M8: any agent may sign as a recipient; whatever it signs verifies. Its newest stay, as those of others do."""
    stored = Counted()
    known = KnownReceipts(400, 10, stored)
    real = [receipt(header(number).message_id) for number in range(1, 201)]
    honest = [receipt(header(number).message_id, "c", Role.RECIPIENT) for number in range(301, 341)]
    for one in (*real, *honest):
        known.add(one, OURS)
    forged = [receipt(header(number).message_id, "b", Role.RECIPIENT) for number in range(1_000, 2_000)]
    for number, one in enumerate(forged):
        known.add(one, PEERS[1])
        if number == 500:
            known.add(receipt(header(1).message_id, "c", Role.EXIT_AGENT), OURS)
    assert len(known) == len(stored) <= 400
    assert all(known.record(one.message_id) for one in (*real, *honest))
    left = [one.message_id for one in forged if known.record(one.message_id)]
    assert left == [one.message_id for one in forged[-len(left) :]]
    assert len(left) >= 50
    assert [number for number, _ in known.ids_after(0, OURS)] == sorted(
        record.number for one in forged if (record := known.record(one.message_id)) is not None
    )
    assert known.number == 1_241


class Watched(InMemory):
    """Notes how many are asked for at once."""

    most = 0

    def get(self, message_ids: Sequence[str]) -> Sequence[bytes]:
        self.most = max(self.most, len(message_ids))
        return super().get(message_ids)


def test_receipts_are_sent_a_frame_at_a_time() -> None:
    """A peer that lacks thousands gets all of them, and no more than a burst is in memory meanwhile; what came after
    the beginning follows."""
    one, other = carrier("a", burst_bytes=2_000), carrier("b")
    stored = Watched()
    one.receipts.keep_in(stored)
    for number in range(1, 1_001):
        one.receipts.add(receipt(header(number).message_id), OURS)
    pair = MeshPair(one, other)
    sizes = []
    for _ in range(500):
        data = pair.contacts[0].outgoing(pair.now)
        sizes.append(len(data))
        pair.take(1, pair.contacts[1].receive(data, pair.now))
        pair.take(0, pair.contacts[0].receive(pair.contacts[1].outgoing(pair.now), pair.now))
    one.receipts.add(receipt(header(1_001).message_id), OURS)
    pair.contacts[0].refresh(pair.now)
    pair.exchange()
    assert pair.contacts[0].closed is None
    assert len(other.receipts) == 1_001
    assert stored.most <= 200
    assert max(sizes) < 40_000
    pair.cut()
    assert len(MeshPair(one, other, pair.now + 1).exchange().sent[0]) < 1_000  # it has them
