"""Records that nobody should have written, on every topic that the ledger reads: no query stops, each is in quarantine
once; and times that nobody lives in."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from schemas.envelope import Meta, ingress_headers
from schemas.events import MessagePresenceEvent, PresenceEvent, ProgressEvent, encode
from schemas.states import GATEWAY_MARK
from tests.conftest import LocalBroker
from tests.integration.jobs.ledger_harness import SENT_MS, LedgerHarness, message_id

EXAMPLES = 25
YEAR_9999_US = 253_402_300_799_000_000

values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just([]) | st.just({})
names = st.sampled_from(
    ["id", "client", "event", "gateway", "epoch", "seq", "at_us", "op", "shard", "kind", "deliveries", "attachments"]
)
later = st.dictionaries(names, values).map(lambda fields: json.dumps({**fields, "v": 7}).encode())
poison = st.fixed_dictionaries(
    {
        "key": st.binary(min_size=1, max_size=20) | st.sampled_from([b"c0", f"{GATEWAY_MARK}g".encode()]),
        "value": st.binary(max_size=100) | later,
        "headers": st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=6),
    }
)


def say_poison(harness: LedgerHarness) -> None:
    topics = harness.topics
    read = (
        topics.ingress, topics.egress, topics.progress, topics.completion, topics.presence, topics.routes,
        topics.message_presence, topics.presence_state, topics.message_presence_state, topics.quarantine,
    )  # fmt: skip

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(records=st.tuples(*([poison] * len(read))))
    def say(records: tuple[dict[str, Any], ...]) -> None:
        for topic, record in zip(read, records, strict=True):
            harness.say_bad(topic, **record)

    say()
    # What only looks right: a client by the name of a gateway, a state under the key of another, a message of presence
    # that has no id, an end of nothing.
    client = PresenceEvent(client=f"{GATEWAY_MARK}g", event="connected", gateway="g", epoch=1, seq=0, at_us=1)
    harness.say_bad(topics.presence, "c", encode(client))
    state = b'{"client":"other","online":true,"at_us":1,"reason":"","attachments":[]}'
    harness.say_bad(topics.presence_state, "c0", state, partition=0)
    gateway = b'{"gateway":"h","alive":false,"boot":9,"at_ms":1}'
    harness.say_bad(topics.presence_state, f"{GATEWAY_MARK}g", gateway, partition=0)
    harness.say_bad(topics.ingress, "$presence/c0", b"", headers=[("src", b"$presence")])
    harness.say(topics.message_presence_state, "nobody's", None)


def say_times(harness: LedgerHarness) -> None:
    """Of the beginning, of the end and of no age at all; each of an event that is otherwise right."""
    topics, of = harness.topics, {"client": "timeless", "gateway": "g", "boot": 1}
    for at_us, is_time in ((0, True), (YEAR_9999_US, True), (-1, False), (YEAR_9999_US + 1, False), (2**63 - 1, False)):
        say = harness.say if is_time else harness.say_bad
        came = PresenceEvent(event="connected", epoch=2**62, seq=at_us, at_us=at_us, **of)  # type: ignore[arg-type]
        say(topics.presence, "timeless", encode(came), partition=0)
    at_us = 2**53 + 1
    lost = PresenceEvent(event="lost", epoch=at_us, seq=2**63 - 1, at_us=at_us, **of)  # type: ignore[arg-type]
    harness.say(topics.presence, "timeless", lost, partition=0)
    envelope = ingress_headers(message_id("timeless"), "timeless", Meta(1, "", None, 0, None), b"\0")
    for meta, is_good in ((b"1;1;;0;0;", True), (f"1;1;;{YEAR_9999_US};0;".encode(), False)):
        headers = [(name, meta if name == "meta" else value) for name, value in envelope]
        (harness.say if is_good else harness.say_bad)(topics.ingress, "a", b"", headers=headers)
    for appended_ms in (-1, SENT_MS * 1000, 2**63):
        event = encode(ProgressEvent(kind="untouched", id="timeless", partition=0, offset=0, appended_ms=1, limit=0))
        harness.say_bad(
            topics.progress, "timeless", event.replace(b'"appended_ms":1', b'"appended_ms":%d' % appended_ms)
        )
    held = MessagePresenceEvent(id="timeless", event="attempting", agent="a", at_us=0, until_us=2**53 + 1)
    harness.say(topics.message_presence, "timeless", held, partition=0)
    future = MessagePresenceEvent(id="timeless", event="delivered", agent="a", peer="b", at_us=YEAR_9999_US)
    harness.say_bad(topics.message_presence, "timeless", encode(future), partition=0)
    harness.flush()


@pytest.fixture(scope="module")
def harness(spark: SparkSession, broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> LedgerHarness:
    """A round, poison and impossible times, all taken: what a query has told before it reads beside the poison."""
    harness = LedgerHarness(spark, broker, "tpoison.", tmp_path_factory.mktemp("poison"))
    harness.say_round()
    say_poison(harness)
    say_times(harness)
    assert harness.run() == {}
    return harness


def test_every_bad_record_is_in_quarantine_once(harness: LedgerHarness) -> None:
    """Random keys, values and headers; later versions; records that only look right."""
    assert len(harness.bad) > 10 * EXAMPLES
    assert harness.found()["quarantine"] == harness.expected()["quarantine"]
    assert all(reason for (reason,) in harness.rows("SELECT reason FROM quarantine"))


def test_what_is_right_beside_them_is_taken(harness: LedgerHarness) -> None:
    """The round comes to what it would have come to alone; a bad state leaves the row of its key as it was."""
    expected, found = harness.expected(), harness.found()
    for query in expected.keys() - {"quarantine"}:
        rows = found[query]
        if isinstance(rows, dict):
            rows = {row: count for row, count in rows.items() if "timeless" not in row}
        assert rows == expected[query], query


def test_dates_are_those_of_the_broker(harness: LedgerHarness) -> None:
    """Whatever clocks others have: history is where it was appended, and who is online goes by epoch and number."""
    today = datetime.now(UTC).date()
    for name in ("messages", "presence_history", "message_presence_history", "outcomes", "quarantine"):
        table = DeltaTable(f"{harness.settings.tables}/{name}")
        days = {part["date"] for part in table.partitions()}
        assert days, name
        assert all(abs((datetime.fromisoformat(str(day)).date() - today).days) <= 1 for day in days), (name, days)
    (state,) = harness.rows("SELECT online, epoch_us(\"at\") FROM presence WHERE client = 'timeless'")
    assert state == (True, YEAR_9999_US), "the greater epoch counts, however it is dated"
    assert len(harness.rows("SELECT client FROM presence_history WHERE client = 'timeless'")) == 3
