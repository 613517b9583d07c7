"""The gateways of a site as a fold over `members`, whatever happens to records and gateways (G2, G14)."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.members.table import MemberTable
from schemas.members import Heartbeat
from tests.unit.gateway.members.heartbeat_records import heartbeat

TIMEOUT_S = 2.0
STATES = ("joining", "up", "draining", "gone")

names = st.sampled_from("abc")
records = st.builds(
    lambda boot, seq, state: heartbeat(boot=boot, seq=seq, state=state, at_us=boot * 100 + seq),
    st.integers(1, 3),
    st.integers(0, 4),
    st.sampled_from(STATES),
)


def unique(said: list[tuple[str, Heartbeat]]) -> list[tuple[str, Heartbeat]]:
    """One record for each number: a gateway writes none twice with another content."""
    return [*{(name, record.boot, record.seq): (name, record) for name, record in said}.values()]


def folded(said: list[tuple[str, Heartbeat]], now: float | None = 0.0) -> dict[str, Heartbeat]:
    table = MemberTable(10, TIMEOUT_S)
    for name, record in said:
        table.apply(name, record, now)
    return {member.name: member.record for member in table}


def order(record: Heartbeat) -> tuple[int, int]:
    return record.boot, record.seq


@given(st.lists(st.tuples(names, records)).map(unique), st.randoms(use_true_random=False))
def test_order_copies_and_compaction_change_nothing(said: list[tuple[str, Heartbeat]], draw: random.Random) -> None:
    newest: dict[str, Heartbeat] = {}
    for name, record in said:
        if name not in newest or order(record) > order(newest[name]):
            newest[name] = record
    assert folded(said) == newest
    shuffled = said * 2
    draw.shuffle(shuffled)
    assert folded(shuffled) == newest
    compacted = [(name, record) for name, record in said if record is newest[name] or draw.random() < 0.5]
    assert folded(compacted) == newest


@given(st.lists(st.tuples(names, st.none() | records, st.none() | st.floats(0, 10))), st.floats(0, 20))
def test_only_members_that_are_up_and_heard_of_are_operational(
    said: list[tuple[str, Heartbeat | None, float | None]], later_s: float
) -> None:
    """G1. Heard of: a record newer than all before arrived within the time, by the reader's clock."""
    table, now = MemberTable(10, TIMEOUT_S), 0.0
    heard: dict[str, tuple[Heartbeat, float | None]] = {}
    for name, record, passed_s in said:
        now += passed_s or 0.0
        arrived = None if passed_s is None else now
        table.apply(name, record, arrived)
        if record is None:
            heard.pop(name, None)
        elif name not in heard or order(record) > order(heard[name][0]):
            heard[name] = (record, arrived)
    now += later_s
    expected = [
        name
        for name, (record, at) in sorted(heard.items())
        if record.state == "up" and at is not None and now - at <= TIMEOUT_S
    ]
    assert [member.name for member in table.operational(now)] == expected


def test_a_silent_member_is_not_operational_until_it_is_heard_again() -> None:
    table = MemberTable(10, TIMEOUT_S)
    table.apply("a", heartbeat(seq=1), 10.0)
    [member] = table.operational(12.0)
    assert table.status(member, 12.0) == "up"
    assert table.operational(12.1) == []
    assert table.status(member, 12.1) == "silent"
    table.apply("a", heartbeat(seq=1), 12.1)
    assert table.operational(12.1) == [], "a copy is no progress"
    table.apply("a", heartbeat(boot=0, seq=9), 12.1)
    assert table.operational(12.1) == [], "nor is an earlier process"
    table.apply("a", heartbeat(seq=2), 12.1)
    assert [member.name for member in table.operational(12.1)] == ["a"]


def test_what_was_there_before_the_reader_proves_no_life() -> None:
    table = MemberTable(10, TIMEOUT_S)
    table.apply("a", heartbeat(), None)
    table.apply("b", heartbeat(state="gone"), None)
    assert table.operational(0.0) == []
    assert {member.name: table.status(member, 0.0) for member in table} == {"a": "silent", "b": "gone"}


def test_a_new_process_supersedes_the_old_one_at_once() -> None:
    """G14: the old one may still run, or wake up."""
    table = MemberTable(10, TIMEOUT_S)
    table.apply("a", heartbeat(boot=1, seq=70), 0.0)
    table.apply("a", heartbeat(boot=2, seq=0, state="joining"), 0.1)
    assert table.operational(0.1) == []
    table.apply("a", heartbeat(boot=1, seq=71), 0.2)
    assert table.operational(0.2) == []
    table.apply("a", heartbeat(boot=2, seq=1), 0.3)
    assert [member.record.boot for member in table.operational(0.3)] == [2]


def test_a_tombstone_forgets_a_name() -> None:
    table = MemberTable(10, TIMEOUT_S)
    table.apply("a", heartbeat(boot=(1 << 63) - 1), 0.0)
    table.apply("a", None, 0.0)
    assert len(table) == 0
    table.apply("a", heartbeat(), 0.0)
    assert [member.name for member in table.operational(0.0)] == ["a"]
    table.apply("never there", None, 0.0)


def test_beyond_the_limit_the_one_not_heard_of_for_longest_is_forgotten() -> None:
    table = MemberTable(2, TIMEOUT_S)
    counts = [table.apply(name, heartbeat(seq=seq), None) for name, seq in (("a", 0), ("b", 0), ("a", 1))]
    assert counts == [0, 0, 0]
    assert table.apply("c", heartbeat(), 1.0) == 1
    assert {member.name for member in table} == {"a", "c"}
    known: Any = table.get("a")
    assert known.record.seq == 1
    assert table.get("b") is None
