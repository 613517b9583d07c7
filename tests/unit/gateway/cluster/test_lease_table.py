"""Who owns a shard follows from the log, whatever compaction has removed (G4, G6, G14)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cluster import lease_table
from gateway.cluster.lease_table import Lease, LeaseTable
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys
from tests.draw import examples

A, B = Claimant("a", 1), Claimant("b", 1)
Record = tuple[LeaseKey, LeaseValue | None]


def claim(claimant: Claimant, epoch: int, shard: int = 0) -> Record:
    return LeaseKey("c", shard, epoch, claimant), Claim()


def table_of(records: list[Record | None], shards: int = 2) -> LeaseTable:
    table = LeaseTable(shards)
    for offset, record in enumerate(records):
        if record is not None:
            table.apply(offset, *record)
    return table


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """What members write that keep the rules: one claim or release an epoch, tombstones below the owner's epoch."""
    table, records, written = LeaseTable(2), [], set()

    def write(key: LeaseKey, value: LeaseValue | None) -> None:
        table.apply(len(records), key, value)
        records.append((key, value))

    for _ in range(draw(st.integers(0, 25))):
        shard, claimant = draw(st.integers(0, 1)), Claimant(draw(st.sampled_from("abc")), draw(st.integers(1, 2)))
        lease = table[shard]
        # A claimant may not have read the newest claims yet.
        epoch = max(1, lease.epoch + 1 - draw(st.integers(0, 2)))
        key = LeaseKey("c", shard, epoch, claimant)
        match draw(st.sampled_from(("claim", "claim", "release", "standbys", "tombstone"))):
            case "claim" if key not in written:
                written.add(key)
                write(key, Claim())
            case "release" if key not in written:
                written.add(key)
                write(key, Release(successor=draw(st.none() | st.sampled_from("abc"))))
            case "standbys" if lease.owner is not None:
                names = draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True))
                write(LeaseKey("s", shard, lease.epoch, lease.owner), Standbys(names=names))
            case "tombstone" if table.outdated(shard) and lease.is_fenced:
                write(draw(st.sampled_from(table.outdated(shard))), None)
    return records


@settings(max_examples=examples(60), deadline=None)
@given(logs(), st.randoms(use_true_random=False))
def test_any_compaction_of_any_prefix_gives_the_same_leases(records: list[Record], draw: random.Random) -> None:
    for end in (*range(0, len(records), 4), len(records)):
        last = {key: offset for offset, (key, _) in enumerate(records[:end])}
        compacted: list[Record | None] = []
        for offset, (key, value) in enumerate(records[:end]):
            is_needed = last[key] == offset and value is not None
            compacted.append((key, value) if is_needed or draw.random() < 0.5 else None)
        # A tombstone may only go once what it removes is gone.
        kept = {record[0] for record in compacted if record is not None and record[1] is not None}
        for offset, (key, value) in enumerate(records[:end]):
            if value is None and key in kept:
                compacted[offset] = (key, None)
        whole, part = table_of([*records[:end]]), table_of(compacted)
        assert [whole[0], whole[1]] == [part[0], part[1]]


@settings(max_examples=examples(60), deadline=None)
@given(logs())
def test_epochs_only_rise_and_each_has_at_most_one_owner(records: list[Record]) -> None:
    table, owners = LeaseTable(2), {}
    for offset, (key, value) in enumerate(records):
        before = table[key.shard]
        lease = table.apply(offset, key, value)
        assert lease is not None
        assert lease.epoch >= before.epoch
        assert owners.setdefault((key.shard, lease.epoch), lease.owner) == lease.owner


def test_the_highest_epoch_wins_and_in_it_the_lowest_offset() -> None:
    table = table_of([claim(A, 1), claim(B, 2), claim(A, 2), claim(A, 1, shard=1)])
    assert (table[0].owner, table[0].epoch) == (B, 2)
    assert (table[1].owner, table[1].epoch) == (A, 1)
    assert table_of([])[0] == Lease(0)


def test_a_release_leaves_no_owner_and_names_the_successor() -> None:
    release = LeaseKey("c", 0, 2, A), Release(successor="b")
    lease = table_of([claim(A, 1), release, claim(B, 2)])[0]
    assert (lease.owner, lease.released_by, lease.successor, lease.epoch) == (None, A, "b", 2)
    assert table_of([claim(A, 1), release, claim(B, 3)])[0].owner == B


def test_standbys_are_those_of_the_owner_or_of_the_one_before_it() -> None:
    named = LeaseKey("s", 0, 1, A), Standbys(names=["b", "c"])
    records = [claim(A, 1), named, claim(B, 2)]
    assert table_of(records[:1])[0] == Lease(0, 1, A)
    assert (table_of(records[:2])[0].standbys, table_of(records[:2])[0].is_fenced) == (("b", "c"), True)
    assert (table_of(records)[0].standbys, table_of(records)[0].is_fenced) == (("b", "c"), False)
    stranger = LeaseKey("s", 0, 2, A), Standbys(names=["x"])
    assert table_of([*records, stranger])[0].standbys == ("b", "c"), "only the owner names the standbys of its epoch"


def test_only_keys_below_the_owner_s_epoch_may_be_removed() -> None:
    named = LeaseKey("s", 0, 1, A), Standbys(names=[])
    table = table_of([claim(A, 1), named, claim(B, 2), claim(A, 2)])
    assert set(table.outdated(0)) == {claim(A, 1)[0], named[0]}
    for key in table.outdated(0):
        table.apply(9, key, None)
    assert table[0].owner == B
    assert table.outdated(1) == []


def test_a_late_tombstone_leaves_newer_claims_of_the_same_gateway() -> None:
    """Its key has the epoch: it was written for one claim, while the next was on its way."""
    table = table_of([claim(A, 1), claim(B, 2), claim(A, 3)])
    table.apply(9, claim(A, 1)[0], None)
    assert (table[0].owner, table[0].epoch) == (A, 3)


def test_a_reader_that_was_away_does_not_fall_back_on_an_earlier_claim() -> None:
    """It has read two claims of epoch 1; what superseded them was superseded, too, and removed, all while it was
    away. The tombstone of the winner must not make the loser the owner."""
    table = table_of([claim(A, 1), claim(B, 1)])
    table.apply(9, claim(A, 1)[0], None)
    assert (table[0].owner, table[0].epoch) == (None, 1)
    table.apply(10, *claim(A, 3))
    assert (table[0].owner, table[0].epoch) == (A, 3)


def test_other_shards_are_passed_over_and_claims_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_table, "MOST_CLAIMS", 20)
    table = LeaseTable(1)
    assert table.apply(0, *claim(A, 1, shard=1)) is None
    for epoch in range(1, 31):
        table.apply(epoch, *claim(A, epoch))
        table.apply(epoch, LeaseKey("s", 0, epoch, A), Standbys(names=["b"]))
    assert table[0].epoch == 30
    assert len(table.outdated(0)) < 2 * 20
