"""What the ledger answers about messages over HTTP: from its tables, to whom it may, within its limits."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from jobs.ledger.bounded_reading import BoundedReading
from jobs.ledger.journey_requests import JourneyRequests
from jobs.observe.server import ListenAddress, ObserverServer
from schemas.identity import derived_message_id
from schemas.journey_api import MESSAGES_MOST, STEPS_MOST, TEXT_CHARACTERS, Journey, MessagesFound
from schemas.operator_access import TokenError
from tests.unit.jobs.ledger_tables import append, with_a_text_that_is_not_utf8

TOKEN = "0123456789abcdef-not-a-real-one"
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
AT_US = 1_767_323_045_678_901
TODAY = AT.date()
HOSTILE = "'; DROP TABLE messages; --\x00<script>"

Answer = tuple[int, Any]


def id_of(at: datetime, number: int) -> str:
    """An id of version 7, made at that time."""
    moment = f"{int(at.timestamp() * 1000):012x}"
    return f"{moment[:8]}-{moment[8:]}-7000-8000-{number:012x}"


def message(message_id: str, at: datetime = AT, **columns: Any) -> dict[str, Any]:
    known = {"id": message_id, "source": "alice", "destination": "news/today", "qos": 1, "payload_bytes": 5}
    return {**known, "accepted": at, "appended": at, "partition": 0, "offset": 7, **columns}


def delivery(message_id: str, client: str, at: datetime = AT) -> dict[str, Any]:
    known = {"message_id": message_id, "outcome": "delivered", "client": client, "qos": 1, "shard": 2, "number": 0}
    return {**known, "at": at, "appended": at, "message_appended": AT}


@contextmanager
def serving(tables: Path, token_file: str = "", **limits: float) -> Iterator[str]:
    """The address of a server that answers about the tables in a directory."""
    reading = BoundedReading(str(tables), **limits)
    asked = JourneyRequests(reading, token_file, lambda: TODAY)
    listen_at = ListenAddress("127.0.0.1", 0, "ledger.metrics_host", "ledger.metrics_port")
    server = ObserverServer(listen_at, CollectorRegistry(), lambda: {"ready": True}, routes=asked.routes())
    try:
        yield server.address
    finally:
        server.stop()
        reading.close()


def get(address: str, path: str, headers: dict[str, str] | None = None, **query: str) -> Answer:
    request = Request(f"http://{address}{path}?{urlencode(query)}", headers=headers or {})
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def test_a_journey_has_the_steps_in_order(tmp_path: Path) -> None:
    message_id = id_of(AT, 1)
    append(str(tmp_path), "messages", [message(message_id)])
    append(str(tmp_path), "outcomes", [delivery(message_id, "bob", AT + timedelta(days=3))])
    with serving(tmp_path) as address:
        status, content = get(address, "/journey", id=message_id)
        journey = msgspec.convert(content, Journey)
    assert (status, journey.id, journey.is_cut) == (200, message_id, False)
    assert [(step.step, step.who) for step in journey.steps] == [
        ("accepted", "alice"),
        ("appended", "broker"),
        ("delivered", "bob"),
    ]
    assert [step.at_us - AT_US for step in journey.steps] == [0, 0, 3 * 86_400_000_000]
    assert journey.steps[0].detail == "to news/today, QoS 1, 5 bytes"


@pytest.mark.parametrize(
    "message_id",
    [id_of(AT + timedelta(days=200), 1), derived_message_id("s", 1), "no UUID", id_of(AT, 1), "f" * 12 + "-7000-8000"],
    ids=["clock far ahead", "derived", "any text", "of its day", "cut"],
)
def test_a_message_is_found_whatever_its_id_says_of_its_time(tmp_path: Path, message_id: str) -> None:
    append(str(tmp_path), "messages", [message(message_id)])
    with serving(tmp_path) as address:
        assert get(address, "/journey", id=message_id)[0] == 200


def test_a_journey_is_whole_though_the_id_is_from_a_clock_ahead(tmp_path: Path) -> None:
    """Also if what came last was at the time that the id says."""
    message_id = id_of(AT + timedelta(days=3), 1)
    append(str(tmp_path), "messages", [message(message_id)])
    append(str(tmp_path), "outcomes", [delivery(message_id, "bob", AT + timedelta(days=3))])
    with serving(tmp_path) as address:
        journey = msgspec.convert(get(address, "/journey", id=message_id)[1], Journey)
    assert [step.step for step in journey.steps] == ["accepted", "appended", "delivered"]


def test_a_time_that_no_calendar_has_is_an_unknown_message(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        status, content = get(address, "/journey", id="ffffffff-ffff-7fff-bfff-ffffffffffff")
    assert status == 404
    assert "if the message was just published, try again in a few seconds" in content["error"]


def test_an_answer_is_bounded(tmp_path: Path) -> None:
    """In steps, messages and characters."""
    message_id, long = id_of(AT, 1), "x" * 5_000
    append(str(tmp_path), "messages", [message(message_id, destination=long)])
    append(str(tmp_path), "messages", [message(id_of(AT, n), destination="many") for n in range(2, 40)])
    append(str(tmp_path), "outcomes", [delivery(message_id, f"c{n}") for n in range(STEPS_MOST + 50)])
    with serving(tmp_path) as address:
        journey = msgspec.convert(get(address, "/journey", id=message_id)[1], Journey)
        found = msgspec.convert(get(address, "/journeys", topic="many")[1], MessagesFound)
        status, _ = get(address, "/journey", id="i" * 201)
    assert (len(journey.steps), journey.is_cut) == (STEPS_MOST, True)
    assert max(len(step.detail) for step in journey.steps) == TEXT_CHARACTERS
    assert len(found.messages) == MESSAGES_MOST
    assert status == 404


def test_the_newest_messages_of_topic_and_client(tmp_path: Path) -> None:
    """Of today and yesterday, or else of the whole ledger; the platform's own are left out of all clients'."""
    old = AT - timedelta(days=30)
    rows = [
        message(id_of(AT, 1), source="alice", destination="a"),
        message(id_of(AT, 2), AT + timedelta(seconds=1), source="bob", destination="a", qos=0),
        message(id_of(AT, 2), AT + timedelta(seconds=2), source="bob", destination="a", qos=0),
        message(id_of(AT, 3), AT + timedelta(seconds=3), source="", destination="$presence/bob"),
        message(id_of(old, 4), old, source="alice", destination="old"),
        message(id_of(old, 5), old, source="carol", destination="a"),
    ]
    append(str(tmp_path), "messages", rows)

    def numbers(**query: str) -> tuple[list[int], str]:
        status, content = get(address, "/journeys", None, **query)
        assert status == 200
        found = msgspec.convert(content, MessagesFound)
        return [int(one.id[-12:], 16) for one in found.messages], found.since

    yesterday = str(TODAY - timedelta(days=1))
    with serving(tmp_path) as address:
        assert numbers(topic="a") == ([2, 1], yesterday), "an id that came twice is listed once"
        assert numbers(client="bob") == ([2], yesterday)
        assert numbers(topic="a", client="alice") == ([1], yesterday)
        assert numbers(client="carol") == ([5], "")
        assert numbers(topic="old") == ([4], "")
        assert numbers() == ([2, 1], yesterday)
        assert numbers(topic="$presence/bob") == ([3], yesterday)
        assert numbers(topic=HOSTILE) == ([], "")
        first = get(address, "/journeys", topic="a")[1]["messages"][0]
    assert first == {
        "id": id_of(AT, 2),
        "accepted_us": AT_US + 2_000_000,
        "source": "bob",
        "destination": "a",
        "qos": 0,
    }


def test_without_tables_nothing_is_found(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        assert get(address, "/journey", id="x")[0] == 404
        assert get(address, "/journeys") == (200, {"messages": [], "since": ""})
        status, content = get(address, "/journey", id=HOSTILE)
        assert (status, "no message" in content["error"]) == (404, True)


def test_unreadable_tables_are_an_error_in_words(tmp_path: Path) -> None:
    append(str(tmp_path), "messages", [message("m")])
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    with serving(tmp_path) as address:
        status, content = get(address, "/journey", id="m")
    assert status == 503
    assert content["error"]


@pytest.mark.parametrize("damage", ["a commit is cut off", "a text is not UTF-8"])
def test_a_damaged_table_is_an_error_in_words(tmp_path: Path, damage: str) -> None:
    """Of this request: others are answered as before."""
    append(str(tmp_path), "messages", [message("m")])
    if damage == "a commit is cut off":
        (*_, last) = sorted((tmp_path / "messages" / "_delta_log").glob("*.json"))
        last.write_bytes(last.read_bytes()[:50])
    else:
        for file in tmp_path.rglob("*.parquet"):
            with_a_text_that_is_not_utf8(file, "source")
    with serving(tmp_path) as address:
        for path, query in (("/journey", {"id": "m"}), ("/journeys", {})):
            status, content = get(address, path, **query)
            assert status == 503
            assert content["error"] == "the ledger cannot read its tables; its log says why"
        assert b"ok" in urlopen(f"http://{address}/healthz", timeout=60).read()


def test_wrong_parameters_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        assert get(address, "/journey")[0] == 400
        assert get(address, "/journey", id="")[0] == 400
        assert get(address, "/journey", id="x", topic="y")[0] == 400
        status, content = get(address, "/journeys", id="x")
        assert (status, "/journeys?topic=" in content["error"]) == (400, True)


def test_a_search_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    append(str(tmp_path), "messages", [message("m")])
    with serving(tmp_path, limit_s=0.0) as address:
        for _ in range(2):
            status, content = get(address, "/journey", id="m")
            assert status == 503
            assert "took longer than 0 s" in content["error"]
        assert b"ok" in urlopen(f"http://{address}/healthz", timeout=60).read()


def test_without_a_token_only_this_machine_may_ask(tmp_path: Path) -> None:
    """No page of a browser under another name, and nobody behind a proxy; metrics and health stay open."""
    with serving(tmp_path) as address:
        for headers in ({"Host": "evil.example"}, {"X-Forwarded-For": "192.0.2.7"}, {"Forwarded": "for=192.0.2.7"}):
            for path, topic in (("/journey", "x"), ("/journeys", "")):
                status, content = get(address, path, headers, topic=topic)
                assert status == 403
                assert "ledger.token_file" in content["error"]
            for path in ("/metrics", "/healthz", "/readyz"):
                assert urlopen(Request(f"http://{address}{path}", headers=headers), timeout=60).status == 200


def test_a_configured_token_is_required_and_never_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    with pytest.raises(TokenError):
        JourneyRequests(BoundedReading(str(tmp_path)), str(file), lambda: date(2026, 1, 2))
    file.write_text(TOKEN + "\n")
    with caplog.at_level(logging.DEBUG), serving(tmp_path, str(file)) as address:
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "ledger.example"}
        assert get(address, "/journeys", right)[0] == 200
        for header in ("Bearer wrong", "", f"Basic {TOKEN}", "Bearer"):
            assert get(address, "/journey", {"Authorization": header}, id="x")[0] == 401
        file.write_text("another-token-of-the-operator")
        assert get(address, "/journeys", right)[0] == 401
        file.unlink()
        assert get(address, "/journeys", right)[0] == 503
    assert TOKEN not in caplog.text
