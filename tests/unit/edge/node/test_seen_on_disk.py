"""What a recipient has been given, on disk: the same as in memory, and a message costs the same however much there is
(M2, M14)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.bundle import SEQUENCE_MAX, Header
from bundles.seen import Seen, SeenLimits, Verdict
from edge.node.batch import Batch, Meta
from edge.node.bundle_store import BundleStore
from tests.draw import generator
from tests.unit.bundles.keys import header

LIMITS = SeenLimits(sources=4, of_originator=2)


class Recipient:
    """The memory and its store, as one process has them."""

    def __init__(self, store: BundleStore, limits: SeenLimits | None) -> None:
        self._store, self._limits = store, limits
        self.restart()

    def restart(self) -> None:
        self.seen = Seen(self._limits, self._store.recover().seen)

    def take(self, *heads: Header, now_s: float = 0.0) -> list[Verdict]:
        """All in one commit, a second apart."""
        batch, verdicts = Batch(), []
        for at, head in enumerate(heads):
            verdicts.append(self.seen.take(head, now_s + at))
            if verdicts[-1] is Verdict.NEW:
                batch.take(self.seen, head)
        batch.freeze(Meta("c", 1, 0, 0.0, 0.0))
        self._store.commit(batch)
        return verdicts

    def written_by(self, head: Header) -> int:
        """The bytes that the commit of one more message writes."""
        self._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert self.take(head) == [Verdict.NEW]
        return self._store._path.with_name("mesh-wal").stat().st_size


@contextmanager
def recipient(path: Path, limits: SeenLimits | None = None) -> Iterator[Recipient]:
    store = BundleStore(path / "mesh", "c", 1, receipts=10, certificates=10)
    try:
        yield Recipient(store, limits)
    finally:
        store.close()


def test_a_thousand_messages_are_a_thousand_however_many_copies_come(tmp_path: Path) -> None:
    """After dtn7-rs#45 (1,067 of 1,000): copies in any order, over any time, and after restarts."""
    draws = generator("copies of a thousand")
    copies = [sequence for sequence in range(1, 1_001) for _ in range(draws.randint(1, 4))]
    draws.shuffle(copies)
    given_count = 0
    with recipient(tmp_path) as one:
        for start in range(0, len(copies), 100):
            verdicts = one.take(*map(header, copies[start : start + 100]))
            given_count += verdicts.count(Verdict.NEW)
            one.restart()
        [stored] = one._store.recover().seen
    assert given_count == 1_000
    assert (stored.low_water, stored.above) == (1_001, ())  # nothing is left to remember but the mark


messages = st.builds(
    lambda sequence, originator, incarnation, mark: header(
        sequence, originator, incarnation=incarnation, low_water=min(mark, sequence), ended_below=min(mark, sequence)
    ),
    st.one_of(st.integers(1, 12), st.integers(SEQUENCE_MAX - 3, SEQUENCE_MAX)),
    st.sampled_from("ab"),
    st.integers(1, 4),
    st.one_of(st.integers(1, 8), st.just(SEQUENCE_MAX)),
)


@given(commits=st.lists(st.lists(messages, max_size=4), max_size=12))
def test_a_restart_changes_nothing(tmp_path_factory: pytest.TempPathFactory, commits: list[list[Header]]) -> None:
    """Any messages, marks and incarnations: what comes after a restart has the verdict that it has without one."""
    always = Seen(LIMITS)
    with recipient(tmp_path_factory.mktemp("seen"), LIMITS) as one:
        for number, heads in enumerate(commits):
            now_s = 10.0 * number
            assert one.take(*heads, now_s=now_s) == [always.take(head, now_s + at) for at, head in enumerate(heads)]
            one.restart()


def test_a_message_costs_the_same_however_many_are_remembered(tmp_path: Path) -> None:
    """Each commit would write all of them anew, and their number may be 100,000."""
    with recipient(tmp_path) as one:
        few = one.written_by(header(3))
        one.take(*map(header, range(5, 20_000)))
        assert one.written_by(header(30_000)) <= few + 2 * 4_200  # two pages, for a deeper tree
