"""Message presence through Spark: who has which message, told whenever that changes (M9, M11, M12)."""

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from jobs.query.journeys import journey
from jobs.query.ledger_reader import LedgerReader, installed_views
from pipelines import sinks
from pipelines.kafka.writer import KafkaWriter
from pipelines.presence import message_presence
from pipelines.presence.custody import Limits
from pipelines.presence.message_presence_sink import MessagePresenceSink
from pipelines.sources import Kafka, topic_stream
from pipelines.storage.keyed_states import KeyedStates
from pipelines.streams import StreamId
from schemas.events import NAME_CHARACTERS, MessagePresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.states import Claim, MessagePresenceState
from tests.conftest import LocalBroker
from tests.integration.pipelines.streamed import kafka_rows
from tests.unit.jobs.ledger_tables import append
from tests.waiting import wait_for

PARTITIONS = 2
AT_MS = 1_700_000_000_000
LIMITS = Limits(claim_s=60, kept_s=3600, most=8)


def said(offset: int, event: str, agent: str, **more: Any) -> tuple[Any, ...]:
    fields = {"at_us": (AT_MS + offset) * 1000, **more}
    value = encode(MessagePresenceEvent(id="m", event=event, agent=agent, **fields))  # type: ignore[arg-type]
    return (b"m", value, "message-presence", 0, offset, AT_MS + offset, None)


def test_a_message_from_hand_to_hand(spark: SparkSession, tmp_path: Path) -> None:
    """M9, M11, M12: over batches, with copies; the state of the last batch is the whole of what is known."""
    batches = [
        [said(0, "attempting", "a", origin="a"), said(1, "propagated", "a", peer="b"), said(2, "claimed", "b")],
        [said(3, "claimed", "a"), said(4, "propagated", "a", peer="b", at_us=(AT_MS + 1) * 1000)],
        [said(5, "delivered", "b", peer="z"), said(6, "refused", "a", reason="delivered")],
        [said(7, "delivered", "a", peer="z"), (b"m", b"{}", "message-presence", 0, 8, AT_MS + 8, None)],
    ]
    known = KeyedStates(tmp_path / "known.sqlite", 3600, lambda _: [])
    given: list[list[MessagePresenceState]] = []
    for number, batch in enumerate(batches):
        assert known.begin(spark, "query", number)
        rows = message_presence.reported(kafka_rows(spark, batch)).collect()
        states, told = known.folded(rows, "id", partial(message_presence.fold, LIMITS))
        known.finish("query", number, states, AT_MS)
        given.append(told)
    assert [len(told) for told in given] == [1, 1, 1, 1], "every event but a copy: of claims too, and of a longer time"
    first, last = given[0][0], given[2][0]
    claim = Claim(agent="b", at_us=(AT_MS + 2) * 1000, until_ms=AT_MS + 2 + 60_000)
    assert (first.state, first.holders, first.attempting, first.claim) == ("pending", ["a", "b"], ["a"], claim)
    assert (last.state, last.delivered_by, last.delivered_to) == ("delivered", "b", "z")
    assert (last.holders, last.refused, last.claim) == (["b"], ["a"], claim)
    assert last.kept_until_ms == AT_MS + 6 + 3_600_000


def test_history_has_every_event_and_marks_bad_ones(spark: SparkSession) -> None:
    """M9: as it came; an event from the future would be kept for ever."""
    late = said(3, "expired", "a", at_us=(AT_MS + 7_200_000) * 1000)
    rows = [
        said(0, "attempting", "a", origin="a"),
        said(1, "propagated", "a"),
        said(2, "refused", "b", reason="full"),
        late,
    ]
    found = message_presence.history(kafka_rows(spark, rows)).orderBy("offset").collect()
    assert [(row.event, row.agent, row.origin, row.reason) for row in found if row.quarantined is None] == [
        ("attempting", "a", "a", None),
        ("refused", "b", None, "full"),
    ]
    bad = [row.quarantined.reason for row in found if row.quarantined is not None]
    assert bad[0] == "peer is missing"
    assert bad[1].startswith("at_us is after the record's append time")


def test_names_too_long_for_a_state_are_quarantined(spark: SparkSession) -> None:
    """M9, bounded: gateways do not write them, but others may write to the topic. Kafka would refuse the state."""
    longest, longer = "\N{GRINNING FACE}" * NAME_CHARACTERS, "n" * (NAME_CHARACTERS + 1)
    rows = [
        said(0, "delivered", longest, origin=longest, peer=longest, reason=longer),
        said(1, "attempting", longer),
        said(2, "attempting", "a", origin=longer),
        said(3, "delivered", "a", peer=longer),
    ]
    found = message_presence.history(kafka_rows(spark, rows)).orderBy("offset").collect()
    assert [row.quarantined and row.quarantined.reason for row in found] == [
        None,
        *(f"{name} is longer than {NAME_CHARACTERS} characters" for name in ("agent", "origin", "peer")),
    ]
    assert [row.offset for row in message_presence.reported(kafka_rows(spark, rows)).collect()] == [0]


def test_claims_are_in_the_ledger_and_in_a_journey(spark: SparkSession, tmp_path: Path) -> None:
    """M9, M11, M12: from the events that agents publish to what an analyst reads: who claimed the message, who
    delivered it, and that it was retired."""
    events = [
        said(0, "propagated", "a", peer="b"),
        said(1, "claimed", "b"),
        said(2, "delivered", "b", peer="platform"),
        said(3, "retired", "a"),
    ]
    rows = [row.asDict(recursive=True) for row in message_presence.history(kafka_rows(spark, events)).collect()]
    assert not any(row.pop("quarantined") for row in rows)
    tables = str(tmp_path / "tables")
    append(tables, "message_presence_history", rows)
    for name in ("messages", "instructions", "outcomes", "completions"):
        append(tables, name, [])
    with closing(LedgerReader(tables, installed_views())) as reader:
        found = reader.query('SELECT event, agent FROM message_presence_history ORDER BY "offset"', []).rows
        steps = journey(reader, "m").rows
    assert found == [("propagated", "a"), ("claimed", "b"), ("delivered", "b"), ("retired", "a")]
    assert [(step, who) for _, step, who, _ in steps] == [(f"mesh: {event}", agent) for event, agent in found]


def test_a_message_is_ended_on_its_topic_once_it_is_kept_no_more(
    spark: SparkSession, broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """M9: the compacted topic does not grow for ever; what is to be kept longer stays."""
    topics, kafka = broker.topics(unique_prefix, PARTITIONS), Kafka(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": unique_prefix})

    def say(message: str, event: str) -> None:
        said = MessagePresenceEvent(id=message, event=event, agent="a", at_us=int(time.time() * 1e6))  # type: ignore[arg-type]
        producer.produce(topics.message_presence, encode(said), message, partition_of(message, PARTITIONS))
        producer.flush()

    def told(message: str) -> list[Message]:
        where = TopicPartition(topics.message_presence_state, partition_of(message, PARTITIONS), 0)
        end = consumer.get_watermark_offsets(where)[1]
        consumer.assign([where])
        return [m for m in (consumer.consume(end, 10) if end else []) if m.key() == message.encode()]

    def run(kept_s: float, checkpoint: str, ended: str | None = None) -> None:
        records = topic_stream(spark, kafka, [topics.message_presence], 1000)
        sink = MessagePresenceSink(
            kafka,
            KafkaWriter(kafka),
            topics.message_presence_state,
            PARTITIONS,
            LIMITS._replace(kept_s=kept_s),
            tmp_path / checkpoint,
        )
        events, tables = message_presence.reported(records), str(tmp_path / checkpoint)
        query = sinks.tell_states(events, StreamId("message_presence_state"), tables, sink, 0.1)

        def is_ended() -> bool:
            say("later", "attempting")
            return ended is None or any(m.value() is None for m in told(ended))

        try:
            query.processAllAvailable()
            wait_for(is_ended, f"the end of {ended}")
        finally:
            query.stop()

    say("m", "attempting")
    say("m", "claimed")
    run(3600, "one")
    state = decode(MessagePresenceState, told("m")[-1].value() or b"")
    assert (state.judged >= 0, state.judged_ms > 0, state.claim is not None) == (True, True, True)
    assert [(report.agent, report.event) for report in state.reports] == [("a", "attempting")]
    say("soon", "attempting")
    run(1, "one", ended="soon")
    assert all(m.value() is not None for m in told("m")), "an hour was asked for, and is not over"
    run(1, "one")
    assert sum(m.value() is None for m in told("soon")) == 1, "once"
