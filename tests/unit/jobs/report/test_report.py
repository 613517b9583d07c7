"""`waystation report`: the figures of a date, from a ledger whose figures are known."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.report.facts import Facts
from jobs.report.findings import findings
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import (
    DATE,
    DAY,
    NOON,
    completion,
    facts_of,
    instruction,
    live,
    message,
    outcome,
    presence,
    write_busy_date,
)

Figures = dict[str, Any]
Report = Callable[..., Figures]


@pytest.fixture
def tables(tmp_path: Path) -> str:
    return str(tmp_path / "tables")


@pytest.fixture
def facts(tables: str, tmp_path: Path) -> Callable[..., Facts]:
    """What is known of a date, with rankings of `top` rows."""

    def one(day: date = DATE, top: int = 10) -> Facts:
        return facts_of(tables, str(tmp_path / "spill"), day, top)

    return one


@pytest.fixture
def report(facts: Callable[..., Facts]) -> Report:
    """The figures of a date, as they are written to JSON."""
    return lambda *asked: facts(*asked).as_json()


def test_what_a_date_had(report, tables):
    """Rows of other dates do not count."""
    write_busy_date(tables)
    figures = report()
    assert figures["totals"] == [{
        "messages": 1000, "bytes": 500_500, "senders": 4, "instructions": 1000, "deliveries": 1000, "recipients": 1,
        "completions": 999,
    }]  # fmt: skip
    assert (figures["begin"], figures["step_s"]) == (NOON, 60)
    first_minute = [row for row in figures["traffic"] if row["slot"] == 0]
    assert first_minute == [
        {"slot": 0, "qos": 0, "messages": 1, "bytes": 3}, {"slot": 0, "qos": 1, "messages": 2, "bytes": 5},
        {"slot": 0, "qos": 2, "messages": 2, "bytes": 7},
    ]  # fmt: skip
    assert sum(row["copies"] for row in figures["deliveries"]) == 1000
    assert figures["outcomes"] == [{"outcome": "delivered", "rows": 1000, "clients": 1}]


def test_percentiles_are_exact(report, tables):
    """By nearest rank: the nth fastest of 1,000 took n ms to be routed."""
    write_busy_date(tables)
    found = {row["stage"]: row for row in report()["latency"] if row["slot"] is None and row["qos"] is None}
    columns = ("rows", "p50", "p90", "p99", "p999", "greatest")
    assert [found["routed"][name] for name in columns] == [1000, 500, 900, 990, 999, 1000]
    assert [found["delivered"][name] for name in columns] == [1000, 1000, 1800, 1980, 2000, 2000]


def test_percentiles_of_each_step_and_qos(report, tables):
    write_busy_date(tables)
    rows = [row for row in report()["latency"] if row["stage"] == "routed" and row["slot"] == 2]
    assert rows == [
        {"stage": "routed", "slot": 2, "qos": None, "rows": 6, "p50": 14, "p90": 17, "p99": 17, "p999": 17,
         "greatest": 17},
    ]  # fmt: skip
    append(tables, "outcomes", [outcome("fast", NOON, 0.25, qos=0, outcome="sent")])
    of_qos = [row for row in report()["latency"] if row["qos"] == 0]
    assert [(row["stage"], row["rows"], row["p50"]) for row in of_qos] == [("delivered", 1, 0.25)]


def test_what_no_instruction_asked_for_and_clocks_apart(report, tables):
    """A retained message has no latency; one delivered before it was appended, by another clock, took none."""
    append(tables, "outcomes", [
        outcome("old", NOON - timedelta(days=300), 300 * 86_400_000, number=None), outcome("early", NOON, -3),
    ])  # fmt: skip
    figures = report()
    assert [(row["rows"], row["p50"]) for row in figures["latency"] if row["slot"] is None] == [(1, 0), (1, 0)]
    assert figures["totals"][0]["deliveries"] == 2


def test_how_long_completion_took(report, tables):
    append(tables, "completions", [completion(f"m{ms}", NOON, ms) for ms in (0, 1, 2, 3, 5, 700, 50 * 3_600_000)])
    day_after_next = report(date(2026, 3, 6))
    assert day_after_next["completion_times"] == [{"up_to_ms": None, "messages": 1}]
    assert [(row["up_to_ms"], row["messages"]) for row in report()["completion_times"]] == [
        (1, 2), (2, 1), (5, 2), (1000, 1),
    ]  # fmt: skip


def test_talkers_topics_and_fan_outs(report, tables):
    append(tables, "messages", [
        *(message(f"m{n}", NOON + timedelta(seconds=n), "chatty", "a/b/c", payload_bytes=1) for n in range(3)),
        message("big", NOON, "heavy", "@bob", payload_bytes=10_000), message("flat", NOON, "quiet", "flat"),
    ])  # fmt: skip
    append(tables, "outcomes", [
        *(outcome("m1", NOON + timedelta(seconds=1), 5, f"c{n}") for n in range(4)),
        outcome("big", NOON, 5), outcome("old", NOON, 5, "c1"), outcome("m2", NOON, 5, "c1", outcome="dropped"),
    ])  # fmt: skip
    figures = report()
    assert [(row["source"], row["messages"], row["bytes"], row["by_bytes"]) for row in figures["talkers"]] == [
        ("chatty", 3, 3, 3), ("heavy", 1, 10_000, 1), ("quiet", 1, 100, 2),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in figures["topics"]] == [
        ("a", "b", 3, 3, 4, pytest.approx(4 / 3)), ("@", None, 1, 10_000, 1, 1), ("flat", None, 1, 100, 0, 0),
    ]  # fmt: skip
    assert [(row["message_id"], row["source"], row["copies"]) for row in figures["fan_outs"]] == [
        ("m1", "chatty", 4), ("big", "heavy", 1), ("old", None, 1),
    ]  # fmt: skip


def test_a_message_that_was_sent_again_is_one_row(report, tables):
    again = NOON + timedelta(minutes=1)
    append(tables, "messages", [message("m", again, "later"), message("m", NOON, "first")])
    append(tables, "outcomes", [outcome("m", NOON, 5), outcome("m", again, 5)])
    (row,) = report()["fan_outs"]
    assert (row["source"], row["appended"], row["copies"]) == ("first", NOON, 2)


def test_rankings_have_as_many_as_asked_for(report, tables):
    append(tables, "messages", [message(f"m{n}", NOON, f"c{n}", f"t{n}") for n in range(5)])
    figures = report(DATE, 2)
    assert [len(figures[name]) for name in ("talkers", "topics", "waiting")] == [2, 2, 2]
    assert figures["waiting"][0]["all_of_them"] == 5


def test_what_stood_out(facts, tables):
    """What is complete by now does not wait, though it was completed later than the date."""
    append(tables, "messages", [
        message("waits", NOON), message("flagged", NOON, "mallory", flags="ra"), message("late", NOON),
    ])  # fmt: skip
    late = timedelta(days=2) // timedelta(milliseconds=1)
    append(tables, "completions", [completion("flagged", NOON, 5), completion("late", NOON, late)])
    append(tables, "outcomes", [
        outcome("late", NOON, 1, outcome="dropped"), outcome("late", NOON, 1, "eve", outcome="expired"),
        outcome("flagged", NOON, 1, None, outcome="nobody"),
    ])  # fmt: skip
    append(tables, "instructions", [instruction("late", NOON, 1, scope="everyone")])
    append(tables, "quarantine", [
        {"topic": "ws.ingress", "partition": 0, "offset": n, "reason": "no id", "at": NOON, "appended": NOON}
        for n in (1, 2)
    ])  # fmt: skip
    run_at = {"run_id": "r2", "run_at": NOON, "judged": 3, "unexpected": 1, "date": DATE}
    append(tables, "quality_results", [
        {**run_at, "run_id": "r1", "run_at": DAY, "expectation": "unique_messages", "success": False},
        {**run_at, "expectation": "offsets", "success": False}, {**run_at, "expectation": "touches", "success": True},
    ])  # fmt: skip
    figures = facts().results
    assert [row["id"] for row in figures["waiting"]] == ["waits"]
    assert [(row["outcome"], row["client"]) for row in figures["losses"]] == [("dropped", "bob"), ("expired", "eve")]
    assert [(row["source"], row["messages"]) for row in figures["flagged"]] == [("mallory", 1)]
    assert [(row["reason"], row["records"]) for row in figures["quarantined"]] == [("no id", 2)]
    assert [row["expectation"] for row in figures["expectations"]] == ["offsets", "touches"]
    section = findings(facts())
    assert [point.partition(" (")[0] + point.rpartition(":")[2] for point in section.points] == [
        "Incomplete messages 1.", "Deliveries dropped 1.", "Deliveries expired 1.",
        "Instructions to all shards 1.", "Messages flagged by policy 1.",
        "Unreadable records in quarantine: 2. 2.",
        "Failed expectations of the quality job: 1. 1.",
    ]  # fmt: skip
    assert "1 of 2 expectations of the quality job passed" in section.lead


def test_who_was_connected(report, tables):
    """R12: also those who came before the date, or stayed beyond it. Whose gateway died without a word is named."""
    hour = timedelta(hours=1)
    append(tables, "presence_history", [
        presence("early", DAY - 5 * hour, "disconnected", DAY + 2 * hour, reason="normal_disconnection"),
        presence("short", NOON, "connected", NOON),
        presence("short", NOON, "lost", NOON + hour, reason="connection_lost"),
        presence("beyond", NOON, "connected", NOON),
        presence("beyond", NOON, "disconnected", DAY + 26 * hour, reason="normal_disconnection"),
        presence("stays", NOON, "connected", NOON), presence("forgotten", NOON, "connected", NOON),
        presence("before", DAY - 9 * hour, "disconnected", DAY - 8 * hour),
        presence("after", DAY + 25 * hour, "connected", DAY + 25 * hour),
    ])  # fmt: skip
    append(tables, "presence", [live("stays", NOON), live("always", DAY - 100 * hour), live("after", DAY + 25 * hour)])
    figures = report()
    assert [(row["slot"], row["most"], row["at_end"]) for row in figures["connected"]] == [
        (0, 2, 2), (24, 1, 1), (144, 4, 4), (156, 3, 3),
    ]  # fmt: skip
    going = {row["slot"]: (row["connected"], row["disconnected"], row["lost"]) for row in figures["comings_and_goings"]}
    assert going == {24: (0, 1, 0), 144: (4, 0, 0), 156: (0, 0, 1)}
    ended = {(row["how"], row["reason"]): (row["connections"], row["median_s"]) for row in figures["ends"]}
    assert ended == {
        (None, None): (3, None), ("unreported", None): (1, None), ("lost", "connection_lost"): (1, 3600),
        ("disconnected", "normal_disconnection"): (1, 7 * 3600),
    }  # fmt: skip
    longest = [(row["client"], row["seconds"] // 3600) for row in figures["longest_connections"]]
    assert longest == [("always", 113), ("beyond", 14), ("early", 7), ("short", 1), ("stays", 1)]


def test_what_only_one_table_of_presence_knows_yet_is_no_lost_gateway(report, tables):
    """R12: `presence` and `presence_history` are written at times of their own, in whichever order."""
    minute = timedelta(minutes=1)
    void, ended = live("void", NOON), live("ended", NOON)
    void["attachments"][0] |= {"live": False}
    ended["attachments"][0] |= {"live": False, "reason": "connection_lost"}
    clients = ("new", "void", "ended", "again", "replaced")
    append(tables, "presence_history", [
        *(presence(client, NOON, "connected", NOON) for client in clients[1:]),
        presence("new", NOON + 2 * minute, "connected", NOON + 2 * minute),
        presence("replaced", NOON + minute, "connected", NOON + minute),
    ])  # fmt: skip
    append(tables, "presence", [void, ended, live("again", NOON + minute), live("replaced", NOON + minute)])
    ends = {row["how"]: row["connections"] for row in report()["ends"]}
    assert ends == {None: 5, "unreported": 2}, "of `void` and the first of `replaced` nobody said how they ended"


def test_the_platforms_own_messages_do_not_count(report, tables):
    """Of no table; also in rows of before there was an `origin`, and where they are delivered as retained ones."""
    append(tables, "messages", [
        message("m", NOON), message("new", NOON, "$presence", "$presence/c", origin="platform"),
        message("old", NOON, "$presence", "$presence/c"),
    ])  # fmt: skip
    for name in ("m", "new", "old"):
        append(tables, "instructions", [instruction(name, NOON, 1)])
        append(tables, "outcomes", [outcome(name, NOON, 5), outcome(name, NOON, 6, "c", outcome="dropped")])
        append(tables, "completions", [completion(name, NOON, 9)])
    long_ago = outcome("retained", NOON - timedelta(days=9), 9 * 86_400_000 + 5, number=None, origin="platform")
    append(tables, "outcomes", [long_ago])
    figures = report()
    assert figures["totals"] == [{
        "messages": 1, "bytes": 100, "senders": 1, "instructions": 1, "deliveries": 1, "recipients": 1,
        "completions": 1,
    }]  # fmt: skip
    assert figures["left_out"] == [{"messages": 2}]
    assert {row["outcome"]: row["rows"] for row in figures["outcomes"]} == {"delivered": 1, "dropped": 1}
    assert (figures["days"][0]["date"], figures["days"][0]["messages"]) == (DATE, 1)
    for name in ("talkers", "topics", "fan_outs", "losses", "shards", "sizes"):
        assert len(figures[name]) == 1, name


def test_connections_of_a_gateway_that_was_lost_end_when_that_was_found(report, facts, tables):
    """And do not count as connected from then on; one that came back with its gateway does, and what the gateway says
    itself counts for more. The report at its start, about a connection with a row of its own, is none."""
    append(tables, "messages", [message("m", NOON)])
    minute, lost = timedelta(minutes=1), {"reason": "gateway_lost", "seq": 10**15}
    clients = ("gone", "back", "said")
    append(tables, "presence_history", [presence(c, NOON, "connected", NOON) for c in clients])
    append(tables, "presence_history", [presence(c, NOON, "lost", NOON + 2 * minute, **lost) for c in clients])
    append(tables, "presence_history", [
        presence("back", NOON, "connected", NOON + 3 * minute, reason="gateway_back", seq=10**15 + 1),
        presence("said", NOON, "disconnected", NOON + minute, reason="normal_disconnection"),
        presence("gone", NOON + 2 * minute, "lost", NOON + 2 * minute, reason="gateway_restarted", seq=0),
    ])  # fmt: skip
    append(tables, "presence", [live("back", NOON)])
    figures = report()
    assert {(row["how"], row["reason"]): row["connections"] for row in figures["ends"]} == {
        (None, None): 1, ("lost", "gateway_lost"): 1, ("disconnected", "normal_disconnection"): 1,
    }  # fmt: skip
    assert figures["connected"][-1]["at_end"] == 1
    assert sum(row["lost"] for row in figures["comings_and_goings"]) == 1
    assert len(facts().restarts) == 1


def test_how_many_messages_wait_over_the_day(report, tables):
    """Those of the date; what was accepted before does not count when it is completed."""
    append(tables, "messages", [message(f"m{n}", NOON + timedelta(seconds=20 * n)) for n in range(3)])
    append(tables, "completions", [
        completion("m0", NOON, 30_000), completion("old", NOON - timedelta(days=1), 86_400_000),
    ])  # fmt: skip
    assert [row["waiting"] for row in report()["backlog"]][-1] == 2
