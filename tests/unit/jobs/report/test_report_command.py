"""`waystation report` as it is called: which dates, where the page goes, what it says if there is none."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import ReportError
from jobs.quality.contents import Contents, Day
from jobs.report.dates import Chosen, choose
from jobs.report.grid import MOST_STEPS, STEPS_A_ROW, bounds_us, grid_over, to_us
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import DAY, NOON, message, presence

TODAY = date(2026, 3, 6)


def contents(**rows: dict[int, int]) -> dict[str, Contents]:
    """How many rows each table has of each day of March."""
    return {name: Contents(0, {date(2026, 3, day): Day(n) for day, n in days.items()}) for name, days in rows.items()}


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        (contents(messages={4: 1, 5: 1, 6: 1}), Chosen([date(2026, 3, 5)], "yesterday")),
        (contents(messages={3: 1, 4: 1, 5: 0}), Chosen([date(2026, 3, 4)], "the newest date with messages")),
        (contents(messages={6: 1}), Chosen([TODAY], "the newest date with messages")),
        (contents(outcomes={4: 1}), Chosen([date(2026, 3, 4)], "the newest date; it has no messages")),
    ],
)
def test_which_date_without_asking(known, chosen):
    assert choose([], known, TODAY) == chosen


def test_dates_are_told_in_order_and_once():
    asked = [date(2026, 3, 5), date(2026, 3, 4), date(2026, 3, 5)]
    assert choose(asked, contents(messages={4: 1, 5: 1}), TODAY) == Chosen([date(2026, 3, 4), date(2026, 3, 5)])


@pytest.mark.parametrize(
    ("asked", "known", "sentence"),
    [
        ([], contents(), "the ledger has no rows yet"),
        ([], contents(routes_history={4: 1}), "the ledger has no rows yet"),
        (
            [date(2026, 3, 9)],
            contents(messages={4: 1, 5: 1}),
            "no rows on 2026-03-09: choose a date from 2026-03-04 to 2026-03-05",
        ),
    ],
)
def test_dates_without_rows(asked, known, sentence):
    with pytest.raises(ReportError, match=sentence):
        choose(asked, known, TODAY)


def test_a_date_without_rows_has_no_page(run, capfd, tmp_path):
    append(str(tmp_path / "tables"), "messages", [message("m", NOON)])
    assert run("report", "--date", "2026-03-05", "--out", str(tmp_path / "page.html")) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "the ledger has no rows on 2026-03-05: choose a date from 2026-03-04 to 2026-03-04" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_no_ledger(run, capfd):
    assert run("report") == 1
    assert "there are no tables in" in capfd.readouterr().err


def test_where_pages_go(run, capfd, tmp_path):
    """One to the file that is named, or among the data; several to a directory. The figures of all to one file."""
    for days in (0, 1):
        append(str(tmp_path / "tables"), "messages", [message(f"m{days}", NOON + timedelta(days=days))])
    assert run("report") == 0
    said = capfd.readouterr().out
    assert said.startswith("2026-03-05 (the newest date with messages): messages 1, deliveries 0; report: ")
    assert "Ledger of 2026-03-05" in (tmp_path / "reports" / "2026-03-05.html").read_text()
    dates = ("--date", "2026-03-05", "--date", "2026-03-04")
    assert run("report", *dates, "--out", str(tmp_path / "both"), "--json", str(tmp_path / "figures.json")) == 0
    assert sorted(file.name for file in (tmp_path / "both").iterdir()) == ["2026-03-04.html", "2026-03-05.html"]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [(one["date"], one["begin"], one["step_s"], one["totals"][0]["messages"]) for one in figures] == [
        ("2026-03-04", "2026-03-04T12:00:00.000000Z", 1, 1), ("2026-03-05", "2026-03-05T12:00:00.000000Z", 1, 1),
    ]  # fmt: skip


def test_a_place_that_cannot_be_written(run, capfd, tmp_path):
    append(str(tmp_path / "tables"), "messages", [message("m", NOON)])
    (tmp_path / "file").touch()
    assert run("report", "--out", str(tmp_path / "file" / "page.html")) == 1
    shown = capfd.readouterr().err
    assert "cannot write " in shown
    assert shown.count("\n") == 1


def test_a_date_of_sessions_alone_says_what_is_missing(run, tmp_path):
    append(str(tmp_path / "tables"), "presence_history", [
        presence("alice", NOON, "connected", NOON),
        presence("alice", NOON, "disconnected", NOON + timedelta(seconds=90), reason="normal_disconnection"),
    ])  # fmt: skip
    assert run("report", "--out", str(tmp_path / "page.html")) == 0
    page = (tmp_path / "page.html").read_text()
    for words in (
        "No message was accepted or delivered.", "No message was routed, delivered or completed.",
        "No message was completed.", "no outcomes.", "no client published.", "no message was delivered.",
        "Nothing to report: no message is waiting, lost, flagged or quarantined.",
    ):  # fmt: skip
        assert words in page
    assert page.count("<figure>") == 2
    assert '<td class="name"><bdi>alice</bdi></td>' in page


MS_OF_DAY = st.integers(0, 86_399_999).map(lambda ms: DAY + timedelta(milliseconds=ms))


@given(st.tuples(MS_OF_DAY, MS_OF_DAY).map(sorted), st.data())
def test_a_grid_has_room_for_all_that_happened(ends, data):
    """In no more steps than can be drawn, within the date, from the beginning of a table's row on."""
    oldest, newest = ends
    grid, (begin_us, end_us) = grid_over(DAY.date(), oldest, newest), bounds_us(DAY.date())
    assert 0 < grid.steps <= MOST_STEPS
    assert (grid.begin_us - begin_us) % (grid.step_us * STEPS_A_ROW) == 0
    assert begin_us <= grid.begin_us <= to_us(oldest)
    assert to_us(newest) < grid.begin_us + grid.steps * grid.step_us
    assert end_us % grid.step_us == 0
    happened = data.draw(st.integers(to_us(oldest), to_us(newest)))
    step = (happened - grid.begin_us) // grid.step_us
    assert grid.clamped(step) == step
    assert grid.at(step) <= datetime.fromtimestamp(happened / 1e6, UTC)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=MOST_STEPS))
def test_rows_have_the_sums_and_the_last_of_their_steps(values):
    grid = grid_over(DAY.date(), DAY, DAY + timedelta(milliseconds=1000 * len(values) - 1))._replace(steps=len(values))
    found = [(step, 1) for step, value in enumerate(values) for _ in range(value)]
    assert grid.filled(found) == values
    assert sum(grid.by_row(values)) == sum(values)
    assert grid.at_row_ends(values)[-1] == values[-1]
    assert len(grid.by_row(values)) == len(grid.at_row_ends(values)) == grid.of_rows().steps
