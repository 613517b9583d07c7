"""When the ledger may give way to the others: while it folds routes in time (R3)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.stack.parts import folds_in_time, ledger_may_lower_priority
from schemas.readiness import announce_ready

LEAD_S = 25.0
NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("ended_s_ago", "took_s", "in_time"),
    [(0, 0.2, True), (5, 7.4, True), (0, 12.6, False), (6, 6.6, False), (60, 0.2, False)],
)
def test_what_counts_is_when_the_last_fold_began(
    tmp_path: Path, ended_s_ago: float, took_s: float, in_time: bool
) -> None:
    """Half of the time for which routers go on without news."""
    say(tmp_path, batch_ms=round(took_s * 1000), at_ms=round((NOW_S - ended_s_ago) * 1000))
    assert folds_in_time(tmp_path, LEAD_S, lambda: NOW_S) is in_time


def test_before_the_first_fold_it_does_not(tmp_path: Path) -> None:
    assert not folds_in_time(tmp_path, LEAD_S)
    say(tmp_path, error="the broker does not answer", at_ms=round(NOW_S * 1000))
    assert not folds_in_time(tmp_path, LEAD_S, lambda: NOW_S)


@pytest.mark.parametrize("can_take_back", [False, True])
def test_it_gives_way_during_its_start_only_where_that_can_be_taken_back(tmp_path: Path, can_take_back: bool) -> None:
    """Else a ledger whose start lasts would fold routes late, for good."""
    now_ms = round(time.time() * 1000)
    announce_ready(tmp_path, "ledger", {"listeners": {}})
    assert not ledger_may_lower_priority(tmp_path, "ledger", LEAD_S, lambda: can_take_back)
    say(tmp_path, batch_ms=200, at_ms=now_ms)
    assert ledger_may_lower_priority(tmp_path, "ledger", LEAD_S, lambda: can_take_back) is can_take_back
    announce_ready(tmp_path, "ledger", {"listeners": {}, "settled": True})
    assert ledger_may_lower_priority(tmp_path, "ledger", LEAD_S, lambda: can_take_back)


def say(data: Path, **status: Any) -> None:
    """The status file of the query that folds routes."""
    (data / "status").mkdir(exist_ok=True)
    (data / "status" / "routes.json").write_text(json.dumps({"query": "routes", **status}))
