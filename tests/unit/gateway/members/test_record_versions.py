"""In which version gateways of several releases write, and which of them may not run together (R5, G14;
vernemq#2488)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.members.record_versions import Reads, RecordVersions
from gateway.members.table import MemberTable
from schemas.members import Heartbeat, MemberState

TIMEOUT_S = 2.0
RANGES = st.tuples(st.integers(1, 5), st.integers(0, 2)).map(lambda of: Reads(of[0], of[0] + of[1]))


def record(reads: Reads, boot: int = 1, state: MemberState = "up", seq: int = 1) -> Heartbeat:
    return Heartbeat(boot=boot, seq=seq, state=state, at_us=0, reads=reads.lowest, reads_to=reads.highest)


def table_of(*members: Reads) -> MemberTable:
    table = MemberTable(100, TIMEOUT_S)
    for number, reads in enumerate(members):
        table.apply(f"gateway-{number}", record(reads), 0.0)
    return table


def test_a_later_release_writes_what_the_earlier_one_reads_while_that_lives() -> None:
    table = table_of(Reads(1, 2), Reads(1, 1))
    later = RecordVersions(5, Reads(1, 2), table)
    assert later.written(1.0) == 1
    table.apply("gateway-1", record(Reads(1, 1), state="gone", seq=2), 1.0)
    assert later.written(1.0) == 2


def test_who_was_killed_counts_until_it_is_silent() -> None:
    later = RecordVersions(5, Reads(1, 2), table_of(Reads(1, 1)))
    assert later.written(TIMEOUT_S) == 1
    assert later.written(TIMEOUT_S + 0.1) == 2


def test_too_many_releases_apart_the_one_that_began_last_ends() -> None:
    old, new = Reads(1, 1), Reads(2, 3)
    began_last = RecordVersions(9, new, table_of())
    assert "update a site by one release at a time" in (began_last.misfit("a", record(old, boot=3)) or "")
    assert RecordVersions(3, old, table_of()).misfit("b", record(new, boot=9)) is None
    assert began_last.misfit("a", record(old, boot=3, state="gone")) is None


@given(RANGES, st.lists(RANGES, max_size=4))
def test_what_is_written_everybody_reads_who_may_stay(own: Reads, others: list[Reads]) -> None:
    versions = RecordVersions(9, own, table_of(*others))
    written = versions.written(0.0)
    stay = [one for one in others if versions.misfit("x", record(one)) is None]
    assert all(written <= one.highest for one in stay)
    if all(one.lowest <= written for one in stay):
        assert own.lowest <= written <= own.highest


@given(RANGES, RANGES, st.booleans())
def test_of_two_that_do_not_fit_exactly_one_ends(a: Reads, b: Reads, is_a_first: bool) -> None:
    boots = (1, 2) if is_a_first else (2, 1)
    ends = [
        RecordVersions(boots[0], a, table_of()).misfit("b", record(b, boots[1])),
        RecordVersions(boots[1], b, table_of()).misfit("a", record(a, boots[0])),
    ]
    assert sum(end is not None for end in ends) == (0 if a.shares(b) else 1)
