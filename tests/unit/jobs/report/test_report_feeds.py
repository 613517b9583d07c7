"""The report's section on redundant feeds (S5)."""

from datetime import timedelta
from pathlib import Path

import pytest

from jobs.report.facts import Facts
from jobs.report.feeds import feeds
from jobs.report.page import page
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import NOON, facts_of, message

SECOND, MS = timedelta(seconds=1), timedelta(milliseconds=1)
HAS = {"active": [*range(1, 50), *range(53, 201)], "backup": [*range(1, 48), 51, *range(60, 201)]}


@pytest.fixture(scope="module")
def with_feed(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The active lacks 50 to 52, the backup 48 to 50 and 52 to 59, so both 50 and 52; the backup is 20 ms later, and
    has other contents under one number."""
    directory = tmp_path_factory.mktemp("with")
    tables, spill = str(directory / "tables"), str(directory / "spill")
    append(tables, "messages", [message("m", NOON)])
    for slot, numbers in HAS.items():
        fixed = {"feed": "radar<b>", "stream": "s@0", "name": "s", "epoch": 0, "part": 0, "slot": slot, "adapter": slot}
        later = 20 * MS * (slot == "backup")
        rows = [
            {**fixed, "sequence": n, "appended": NOON + n * SECOND + later, "payload_bytes": 5, "partition": 0,
             "crc32": 1 + (slot == "backup" and n == 9), "offset": place}
            for place, n in enumerate(numbers)
        ]  # fmt: skip
        append(tables, "feed_copies", rows)
        last = {**rows[-1], "copies": len(rows), "duplicates": 4, "highest": 200}
        append(tables, "feed_progress", [last])
    return facts_of(tables, spill)


def test_the_figures_are_those_of_the_date(with_feed: Facts) -> None:
    active, backup = with_feed.rows("feeds")
    assert (active["copies"], active["gaps"], active["missing"], active["lost_in_both"]) == (197, 1, 3, 2)
    assert (backup["copies"], backup["gaps"], backup["missing"], backup["duplicates"]) == (189, 2, 11, 4)
    assert (active["differences"], active["p50_lag_ms"], active["p99_lag_ms"]) == (1, 20.0, 20.0)
    assert {(row["p50"], row["p99"]) for row in with_feed.rows("feed_lags")} == {(20.0, 20.0)}
    missing = with_feed.rows("feed_missing")
    assert sum(row["numbers"] for row in missing if row["feed_slot"] == "both") == 2
    assert [(row["first_number"], row["last_number"]) for row in with_feed.rows("feed_lost")] == [(50, 50), (52, 52)]


def test_the_section_has_plots_and_tables_and_is_escaped(with_feed: Facts) -> None:
    section = feeds(with_feed)
    assert section is not None
    assert [len(plot.svg) > 1000 for plot in section.plots] == [True, True]
    assert section.points == ["Feed radar<b>: 2 numbers are in neither slot."]
    shown = page(with_feed)
    assert 'id="feeds"' in shown
    assert "radar<b>" not in shown.replace("<b></b>", "")
    assert "in total 3 missing in the active, 11 missing in the backup, 2 in neither" in shown


def test_a_date_without_feeds_has_no_section(tmp_path: Path) -> None:
    append(str(tmp_path / "tables"), "messages", [message("m", NOON)])
    facts = facts_of(str(tmp_path / "tables"), str(tmp_path / "spill"))
    assert feeds(facts) is None
    assert 'id="feeds"' not in page(facts)
