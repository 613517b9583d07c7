"""Which dates the quality job judges, and what of them it looks at: decided without reading a row."""

from datetime import date, datetime, timedelta

import pytest

from jobs.errors import QualityError
from jobs.quality.contents import Contents, Day
from jobs.quality.dates import Asked, Choice, Judged, looked_for_since, passes, to_judge, window_begin
from schemas.tables import HISTORY

DAY = timedelta(days=1)
FIRST = date(2026, 3, 1)
AGAIN = 7
UNTIL = datetime(2026, 3, 20)  # noqa: DTZ001 - UTC without a zone, as the job has it


def at(day: date, hour: int = 12) -> datetime:
    return datetime.combine(day, datetime.min.time()) + timedelta(hours=hour)


def full(day: date, rows: int = 10, hour: int = 12) -> Day:
    return Day(rows, at(day, 0), at(day, hour), at(day, 0))


def ledger(*days: date, **more: dict[date, Day]) -> dict[str, Contents]:
    found = {table.name: Contents(3, {day: full(day) for day in days}) for table in HISTORY}
    return found | {name: Contents(4, table) for name, table in more.items()}


def seen(contents: dict[str, Contents], until: datetime = UNTIL) -> dict[tuple[date, str], Judged]:
    return {(day, name): Judged(one.rows, until) for name, table in contents.items() for day, one in table.days.items()}


def chosen(
    asked: Asked, contents: dict[str, Contents], judged: dict[tuple[date, str], Judged], until: datetime = UNTIL
) -> list[date]:
    choice = to_judge(asked, contents, judged, until, AGAIN)
    assert choice.left == []
    return choice.dates


def failed(seen: dict[tuple[date, str], Judged], day: date, at: datetime = UNTIL) -> dict[tuple[date, str], Judged]:
    """The same, but that something did not hold of `outcomes` on a day, in a run that began `at`."""
    return seen | {(day, "outcomes"): seen[day, "outcomes"]._replace(holds=False, at=at)}


def test_what_no_run_has_judged_is_due_and_nothing_else() -> None:
    contents = ledger(FIRST, FIRST + DAY)
    assert chosen(Asked(), contents, {}) == [FIRST, FIRST + DAY]
    assert chosen(Asked(), contents, seen(contents)) == []


def test_a_table_with_more_rows_makes_its_date_due() -> None:
    before = ledger(FIRST, FIRST + DAY)
    now = before | {"outcomes": Contents(9, {FIRST: full(FIRST), FIRST + DAY: full(FIRST + DAY, rows=11)})}
    assert chosen(Asked(), now, seen(before)) == [FIRST + DAY]


def test_rows_that_had_not_settled_make_their_date_due() -> None:
    contents = ledger(FIRST)
    earlier = seen(contents, until=at(FIRST, 12))
    assert chosen(Asked(), contents, earlier) == [FIRST]


def test_a_date_that_failed_is_due_until_it_holds() -> None:
    """Nothing has been appended to it: a repair may leave as many rows as there were."""
    contents = ledger(FIRST, FIRST + DAY)
    before = failed(seen(contents), FIRST)
    assert chosen(Asked(), contents, before) == [FIRST]
    assert chosen(Asked(), contents, seen(contents)) == []


def test_failed_dates_take_turns() -> None:
    """So many in a run, those whose turn was longest ago; the others are named. What has new rows is judged in any
    case."""
    days = [FIRST + n * DAY for n in range(4)]
    contents = ledger(*days)
    before = seen(contents)
    for n, day in enumerate(days[:3]):
        before = failed(before, day, at=UNTIL - n * DAY)
    assert to_judge(Asked(), contents, before, UNTIL, 2) == Choice(days[1:3], [days[0]])
    more = contents | {"messages": Contents(5, {days[0]: full(days[0], rows=11), days[3]: full(days[3], rows=11)})}
    assert to_judge(Asked(), more, before, UNTIL, 1) == Choice([days[0], days[2], days[3]], [days[1]])


def test_a_run_that_would_see_less_does_not_clear_a_date() -> None:
    """As with a longer `--settle`: what failed is not there for it."""
    contents = ledger(FIRST)
    before = failed(seen(contents), FIRST)
    assert to_judge(Asked(), contents, before, UNTIL - DAY, AGAIN) == Choice([], [FIRST])


def test_a_failed_date_that_is_gone_is_forgotten() -> None:
    """Maintenance removes old dates."""
    both = ledger(FIRST, FIRST + DAY)
    assert chosen(Asked(), ledger(FIRST + DAY), failed(seen(both), FIRST)) == []


def test_a_date_whose_rows_have_all_yet_to_settle_is_not_due() -> None:
    assert chosen(Asked(), ledger(FIRST), {}, at(FIRST, 0)) == []


def test_what_is_asked_for_is_judged_whatever_was_before() -> None:
    contents = ledger(FIRST, FIRST + DAY, FIRST + 5 * DAY)
    assert chosen(Asked((FIRST,)), contents, seen(contents)) == [FIRST]
    assert chosen(Asked(since=FIRST + DAY), contents, seen(contents)) == [FIRST + DAY, FIRST + 5 * DAY]


def test_a_date_without_rows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(QualityError, match="no rows on 2026-02-28: choose a date from 2026-03-01 to 2026-03-02"):
        to_judge(Asked((FIRST - DAY,)), ledger(FIRST, FIRST + DAY), {}, UNTIL, AGAIN)


def test_passes_span_so_many_days_at_most() -> None:
    days = [FIRST, FIRST + DAY, FIRST + 6 * DAY, FIRST + 7 * DAY, FIRST + 30 * DAY]
    assert list(passes(days, 7)) == [days[:3], [days[3]], [days[4]]]
    assert list(passes([], 7)) == []


def test_what_rows_refer_to_is_looked_for_as_far_back_as_they_refer() -> None:
    """And the day before in any case; not beyond the message window."""
    tenth = FIRST + 9 * DAY
    contents = ledger(tenth)
    assert looked_for_since([tenth], contents, 7) == tenth - DAY
    contents["outcomes"] = Contents(1, {tenth: Day(1, at(tenth), at(tenth), at(tenth - 3 * DAY))})
    assert looked_for_since([tenth], contents, 7) == tenth - 3 * DAY
    contents["outcomes"] = Contents(1, {tenth: Day(1, at(tenth), at(tenth), at(tenth - 300 * DAY))})
    assert looked_for_since([tenth], contents, 7) == tenth - 7 * DAY


def test_last_offsets_are_looked_for_within_the_message_window() -> None:
    """Whatever other partitions had in between."""
    tenth = FIRST + 9 * DAY
    assert window_begin([tenth + DAY, tenth], 7) == tenth - 7 * DAY
