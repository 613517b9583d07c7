"""`waystation explain`: the decision on a message made again, and what became of it (R3, R7)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.audit.completeness import completeness_watermarks
from schemas.tables import FAR_FUTURE
from tests.unit.jobs.ledger_tables import append

AT = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
MESSAGE, INBOX, NOBODYS, LATEST, COPIED = (f"019b7e1a-0000-7000-8000-00000000000{n}" for n in range(5))


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def message(number: int, name: str, destination: str, at: datetime) -> dict[str, Any]:
    return {
        "id": name, "source": "alice", "destination": destination, "qos": 1, "retained": False, "payload_bytes": 3,
        "accepted": at, "appended": at, "partition": 0, "offset": number,
    }  # fmt: skip


def instruction(number: int, name: str, shard: int, nth: int, limit: int | None, at: datetime) -> dict[str, Any]:
    return {
        "message_id": name, "shard": shard, "number": nth, "limit": limit, "scope": "routed", "router": "active",
        "partition": 0, "offset": number, "message_appended": at, "appended": at + timedelta(milliseconds=2),
    }  # fmt: skip


def change(offset: int, op: str, shard: int, route_key: str, at: datetime) -> dict[str, Any]:
    effective = at + timedelta(seconds=50 if op == "drop" else 25)
    return {
        "offset": offset, "op": op, "shard": shard, "route_key": route_key, "effective": effective, "appended": at,
        "date": at.date(),
    }  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """Shards 1 and 3 want `a/b`, shard 2 no more; a message to it, one to an inbox, one that nobody wants; and one half
    an hour later, of which the instructions are not in yet."""
    tables = str(tmp_path / "tables")
    append(tables, "routes_history", [
        change(3, "add", 1, "a/b", after(-300)), change(4, "add", 2, "a/b", after(-300)),
        change(5, "add", 3, "#", after(-200)), change(8, "drop", 2, "a/b", after(-60)),
    ])  # fmt: skip
    append(tables, "routes", [
        {"route_key": "#", "bucket": -1, "as_of": after(3600), "targets": [
            {"shard": 3, "effective_from": after(-175), "effective_until": FAR_FUTURE}]},
        {"route_key": "a/b", "bucket": 1, "targets": [
            {"shard": 1, "effective_from": after(-275), "effective_until": FAR_FUTURE},
            {"shard": 2, "effective_from": after(-275), "effective_until": after(-10)}]},
    ])  # fmt: skip
    append(tables, "messages", [
        message(0, MESSAGE, "a/b/c", AT), message(1, INBOX, "@bob", AT), message(2, NOBODYS, "x", after(-240)),
        message(3, LATEST, "a/b", after(1800)), message(4, COPIED, "a/b", AT), message(5, COPIED, "a/b", after(1)),
    ])  # fmt: skip
    append(tables, "instructions", [
        instruction(0, MESSAGE, 1, 0, None, AT), instruction(0, MESSAGE, 3, 1, 2, AT),
        instruction(1, INBOX, 0, 0, 1, AT), instruction(4, COPIED, 1, 0, None, AT), instruction(4, COPIED, 3, 1, 2, AT),
        instruction(5, COPIED, 1, 0, None, after(1)), instruction(5, COPIED, 3, 1, 2, after(1)),
        instruction(9, "another", 3, 0, 1, after(900)),
    ])  # fmt: skip
    append(tables, "outcomes", [
        {"message_id": MESSAGE, "shard": 1, "number": 0, "client": "[bob]", "outcome": "delivered", "qos": 1,
         "at": after(1), "message_appended": AT, "appended": after(1)},
        {"message_id": NOBODYS, "outcome": "untouched", "at": after(-240), "message_appended": after(-240),
         "appended": after(-240)},
        {"message_id": "another of nobody", "outcome": "untouched", "at": after(900), "message_appended": after(900),
         "appended": after(900)},
    ])  # fmt: skip
    append(tables, "completions", [
        {"message_id": MESSAGE, "touches": 2, "message_appended": AT, "completed": after(2), "appended": after(3)}
    ])  # fmt: skip
    return tables


def test_why_it_went_there_and_what_became_of_it(run, capfd, tables):
    assert run("explain", MESSAGE) == 0
    shown = capfd.readouterr().out
    for words in (
        "alice → a/b/c, QoS 1", "ingress partition 0, offset 0", "a/b  a  #", "shards 1, 3",
        "add at offset 3, appended 2026-01-02T11:55:00.000000Z", "add at offset 5",
        "Routing correct: instructions match the routes.", "[bob]",
        "Completed at 2026-01-02T12:00:02.000000Z, after 2 instructions.",
    ):  # fmt: skip
        assert words in shown, words
    assert "offset 4" not in shown, "a route that was not in effect"


def test_as_json(run, capfd, tables):
    assert run("explain", MESSAGE, "--json") == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert (found["wanted"], found["verdict"], found["differences"]) == ([1, 3], "right", [])
    assert [(route["route_key"], route["shard"], route["effective_until"]) for route in found["routes"]] == [
        ("a/b", 1, None), ("#", 3, None),
    ]  # fmt: skip
    assert found["routes"][0]["by"] == [{
        "offset": 3, "op": "add", "shard": 1, "effective": "2026-01-02T11:55:25.000000Z",
        "appended": "2026-01-02T11:55:00.000000Z",
    }]  # fmt: skip
    assert found["message"]["appended"] == "2026-01-02T12:00:00.000000Z"
    assert [one["client"] for one in found["outcomes"]] == ["[bob]"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (INBOX, ("an inbox belongs to the shard of its client", "shard 0", "Routing correct", "Not completed")),
        (NOBODYS, ("no shard", "untouched", "Routing correct")),
        (LATEST, ("shards 1, 3", "Not audited yet: the ledger is not complete up to this message")),
    ],
)
def test_other_messages(run, capfd, tables, name, words):
    """An inbox needs no route; nobody's message is complete; a message younger than the ledger is not judged (R7)."""
    assert run("explain", name) == 0
    shown = capfd.readouterr().out
    assert all(word in shown for word in words), shown


def test_a_message_that_was_accepted_twice_is_explained_twice(run, capfd, tables):
    assert run("explain", COPIED, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert [(one["message"]["offset"], one["verdict"], len(one["instructions"])) for one in found] == [
        (4, "right", 2), (5, "right", 2),
    ]  # fmt: skip


def test_each_time_that_a_message_was_accepted_is_explained_by_what_became_of_it_then(run, capfd, tables):
    """R7: nobody wanted it the first time, and it was complete at once."""
    name = "019b7e1a-0000-8000-8000-000000000009"
    append(tables, "messages", [message(20, name, "a/b", after(-300)), message(21, name, "a/b", AT)])
    append(tables, "instructions", [instruction(21, name, 1, 0, None, AT), instruction(21, name, 3, 1, 2, AT)])
    append(tables, "outcomes", [
        {"message_id": name, "outcome": "untouched", "at": after(-300), "message_appended": after(-300),
         "appended": after(-299)},
        {"message_id": name, "shard": 1, "number": 0, "client": "bob", "outcome": "delivered", "qos": 1,
         "at": after(1), "message_appended": AT, "appended": after(1)},
    ])  # fmt: skip
    append(tables, "completions", [
        {"message_id": name, "touches": 0, "message_appended": after(-300), "completed": after(-299),
         "appended": after(-298)}
    ])  # fmt: skip
    assert run("explain", name, "--json") == 0
    first, second = json.loads(capfd.readouterr().out)
    assert [(one["verdict"], one["wanted"]) for one in (first, second)] == [("right", []), ("right", [1, 3])]
    assert [[row["outcome"] for row in one["outcomes"]] for one in (first, second)] == [["untouched"], ["delivered"]]
    assert first["completion"]["touches"] == 0
    assert second["completion"] is None


def test_what_another_broker_dated_the_day_before_is_found(run, capfd, tables):
    """Their clocks are apart, and the message is of midnight."""
    midnight = datetime(2026, 1, 2, tzinfo=UTC)
    name = "019b7e1a-0000-7000-8000-000000000009"
    append(tables, "messages", [message(20, name, "@bob", midnight)])
    early = instruction(20, name, 0, 0, 1, midnight) | {"appended": midnight - timedelta(milliseconds=20)}
    append(tables, "instructions", [early])
    assert run("explain", name) == 0
    assert "Routing correct" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (
            instruction(0, MESSAGE, 2, 2, 3, AT),
            "superfluous (scope routed), shard 2: an instruction was written for a shard, but was not due",
        ),
        (
            instruction(7, MESSAGE, 2, 0, 1, AT),
            "unknown (scope routed), shard 2: the instruction names another ingress offset",
        ),
        (instruction(0, MESSAGE, 1, 1, 2, AT), "numbering (scope routed), shards 1, 3"),
        ({**instruction(0, MESSAGE, 1, 1, 2, AT), "scope": "everyone"}, "missing (scope everyone), shards 0, 2, 3"),
    ],
)
def test_what_differs(run, capfd, tables, extra, sentence):
    append(tables, "instructions", [extra])
    assert run("explain", MESSAGE) == 1
    assert sentence in capfd.readouterr().out


def test_an_unknown_message(run, capfd, tables):
    assert run("explain", "none") == 1
    assert "the ledger has no message none" in capfd.readouterr().err


def test_a_table_with_a_damaged_log_is_named(run, capfd, tables):
    (*_, last) = sorted(Path(tables, "instructions", "_delta_log").glob("*.json"))
    last.write_bytes(last.read_bytes()[:50])
    assert run("explain", MESSAGE) == 1
    assert "table instructions cannot be read" in capfd.readouterr().err


def test_how_far_the_ledger_is(tables):
    """Routes are known to the end of the table of routes, or to the newest event when history lacks one."""
    watermarks = completeness_watermarks(tables, 60)
    assert watermarks == (after(3600), after(900 - 60), after(900 - 60), after(1800 - 60))
    late = {"shard": 0, "effective_from": after(3500), "effective_until": FAR_FUTURE}
    append(tables, "routes", [{"route_key": "b", "bucket": 2, "targets": [late]}])
    assert completeness_watermarks(tables, 60).routes == after(-60)


def test_how_far_routes_are_known_if_a_later_event_takes_effect_earlier(tables):
    """As an `add` soon after a `drop` does, and history lacks it."""
    late = {"shard": 0, "effective_from": after(-15), "effective_until": FAR_FUTURE}
    append(tables, "routes", [{"route_key": "b", "bucket": 2, "targets": [late]}])
    assert completeness_watermarks(tables, 60).routes == after(-60)


def test_how_far_the_ledger_is_while_routers_work_off_a_backlog(tmp_path):
    """Their rows are new, about old messages: what they have not come to yet is not missing."""
    tables = str(tmp_path)
    late = [instruction(n, f"m{n}", 1, 0, 1, after(n)) | {"appended": after(7200 + n)} for n in range(3)]
    append(tables, "instructions", late)
    untouched = {"message_id": "m3", "outcome": "untouched", "at": after(7203), "message_appended": after(3)}
    append(tables, "outcomes", [untouched | {"appended": after(7203)}])
    watermarks = completeness_watermarks(tables, 60)
    assert (watermarks.instructions, watermarks.untouched) == (after(2 - 60), after(3 - 60))


def test_how_far_nothing_is(tmp_path):
    assert completeness_watermarks(str(tmp_path), 60) == (None, None, None, None)
