"""Client presence through Spark and Kafka: one state a client, whatever fails on the way (R12)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipelines import sinks
from pipelines.kafka.writer import KafkaWriter, NotWritten
from pipelines.presence import client_presence, lost_connections
from pipelines.presence.client_presence_sink import PresenceSink
from pipelines.sources import Kafka, topic_stream
from pipelines.storage.keyed_states import KeyedStates
from pipelines.streams import StreamId
from schemas.envelope import Meta
from schemas.events import PresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.settings import process_settings
from schemas.states import GATEWAY_MARK, GatewayState, PresenceState
from schemas.topics import Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.pipelines.streamed import kafka_rows
from tests.waiting import wait_for

PARTITIONS = 2
AT_MS = 1_700_000_000_000
SETTINGS = msgspec.structs.replace(process_settings({}).presence, heartbeat_s=0.2, timeout_s=1.0, trigger_s=0.1)


def event(client: str, kind: str, epoch: int, seq: int, gateway: str = "g", **more: Any) -> PresenceEvent:
    fields = {"boot": 1, "at_us": epoch * 1000 + seq, **more}
    return PresenceEvent(client=client, event=kind, epoch=epoch, seq=seq, gateway=gateway, **fields)  # type: ignore[arg-type]


def record(offset: int, what: PresenceEvent, partition: int = 0) -> tuple[Any, ...]:
    return (what.kafka_key.encode(), encode(what), "presence", partition, offset, AT_MS + offset, None)


def test_changes_of_clients_gateways_and_ticks(spark: SparkSession, tmp_path: Path) -> None:
    """R12: copies, late and out-of-order events over several batches; a client only where something has changed."""
    came, lost = event("c", "connected", 1, 0, peer="p"), event("c", "lost", 1, 1, reason="why")
    tick = PresenceEvent(client="", event="tick", gateway="", epoch=0, seq=0, at_us=0)
    batches = [
        [record(0, lost), record(1, came), record(2, lost), record(3, event("", "heartbeat", 1, 0))],
        [record(4, came), record(5, lost)],
        [record(6, event("c", "connected", 2, 0, gateway="h")), record(7, event("c", "lost", 1, 2)), record(8, tick)],
        [record(9, event("c", "heartbeat", 2, 1, gateway="h")), record(10, event("", "disconnected", 1, 1))],
        [(b"k", b"not json", "presence", 0, 11, AT_MS + 11, None), record(12, event("", "lost", 1, 1))],
    ]
    known = KeyedStates(tmp_path / "known.sqlite", 3600, lambda _: [])
    found = []
    for number, batch in enumerate(batches):
        assert known.begin(spark, "query", number)
        rows = client_presence.reported(kafka_rows(spark, batch)).collect()
        clients = [row for row in rows if row.kind == "client"]
        states, changed = known.folded(clients, "name", partial(client_presence.fold, 8))
        known.finish("query", number, states, AT_MS)
        signs = [(sign.gateway, sign.at_ms - AT_MS, sign.ended) for sign in client_presence.signs(rows)]
        ticks = {partition: [ms - AT_MS for ms in at_ms] for partition, at_ms in client_presence.ticks(rows).items()}
        found.append((changed, signs, ticks))
    assert [([one.client for one in changed], signs, ticks) for changed, signs, ticks in found] == [
        (["c"], [("g", 3, False)], {}),
        ([], [], {}),
        (["c"], [], {0: [8]}),
        ([], [("g", 10, True)], {}),
        ([], [], {}),
    ]
    ((client,), _, _) = found[2]
    assert [(one.first.event, one.last.event, one.last.seq) for one in client.known] == [
        ("connected", "lost", 2),
        ("connected", "connected", 0),
    ]


class PresenceHarness:
    """A query that tells presence, on topics of its own, and what stands on them."""

    def __init__(self, spark: SparkSession, broker: LocalBroker, prefix: str, tables: Path) -> None:
        self.topics: Topics = broker.topics(prefix, PARTITIONS)
        self._spark = spark
        self._kafka = Kafka(broker.bootstrap)
        self._tables = str(tables)
        self._writer = KafkaWriter(self._kafka)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": prefix})

    def say(self, *events: PresenceEvent) -> None:
        for one in events:
            partition = partition_of(one.kafka_key, PARTITIONS)
            self._producer.produce(self.topics.presence, encode(one), one.kafka_key, partition)
        self._producer.flush()

    def tick(self) -> None:
        for partition in range(PARTITIONS):
            tick = PresenceEvent(client="", event="tick", gateway="", epoch=0, seq=0, at_us=0)
            self._producer.produce(self.topics.presence, encode(tick), "tick", partition)
        self._producer.flush()

    @contextmanager
    def ticking(self, beat: PresenceEvent) -> Iterator[None]:
        """Meanwhile the ledger ticks, and a gateway says `beat`, as often as they are to."""
        stopped = Event()

        def go_on() -> None:
            while not stopped.wait(SETTINGS.heartbeat_s):
                self.say(beat)
                self.tick()

        thread = Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def run(self, until: Callable[[], bool] | None = None, **settings: Any) -> None:
        """Runs the query until all that was said is merged, and `until` holds."""
        records = topic_stream(self._spark, self._kafka, [self.topics.presence], 1000)
        of = msgspec.structs.replace(SETTINGS, **settings)
        sink = PresenceSink(self._kafka, self._writer, self.topics, PARTITIONS, of, time.time, Path(self._tables))
        query = sinks.tell_states(
            client_presence.reported(records), StreamId("presence_state"), self._tables, sink, 0.1
        )
        try:
            query.processAllAvailable()
            if until is not None:
                wait_for(until, "what the query is to find")
        finally:
            query.stop()

    def read(self, topic: str, partitions: int) -> list[Message]:
        found = []
        for partition in range(partitions):
            where = TopicPartition(topic, partition, 0)
            end = self._consumer.get_watermark_offsets(where)[1]
            self._consumer.assign([where])
            found += self._consumer.consume(end, 10) if end else []
        return found

    def states(self) -> dict[str, PresenceState | GatewayState]:
        latest = {m.key().decode(): m.value() for m in self.read(self.topics.presence_state, PARTITIONS)}
        kinds = {True: GatewayState, False: PresenceState}
        return {key: decode(kinds[key.startswith(GATEWAY_MARK)], value) for key, value in latest.items() if value}

    def online(self, client: str) -> bool:
        state = self.states()[client]
        assert isinstance(state, PresenceState)
        return state.online

    def messages(self) -> list[tuple[str, bool, str]]:
        """Topic, whether online, and id of each message on `ingress`, in order."""
        found = self.read(self.topics.ingress, PARTITIONS)
        return [(m.key().decode(), msgspec.json.decode(m.value())["online"], dict(m.headers())["id"]) for m in found]

    def retained(self) -> dict[str, bytes | None]:
        return {m.key().decode(): m.value() for m in self.read(self.topics.retained, 1)}

    def added(self) -> list[tuple[str, str, str, int]]:
        """Client, event, gateway and epoch of what the query itself has added to `presence`, copies once, in order."""
        found = [decode(PresenceEvent, m.value()) for m in self.read(self.topics.presence, PARTITIONS)]
        own = {(e.seq, e.client): e for e in found if e.reason in lost_connections.REASONS}
        return [(e.client, e.event, e.gateway, e.epoch) for _, e in sorted(own.items())]

    def ends(self) -> list[str]:
        """The keys of `presence-state` that were ended."""
        return [m.key().decode() for m in self.read(self.topics.presence_state, PARTITIONS) if m.value() is None]


@pytest.fixture
def harness(spark: SparkSession, broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> PresenceHarness:
    return PresenceHarness(spark, broker, unique_prefix, tmp_path)


@draw.long_test
def test_a_silent_gateway_takes_its_clients_along_and_brings_them_back(harness: PresenceHarness) -> None:
    """R12: over several attachments; without any event of the clients themselves; after a restart of the query too."""
    harness.say(event("", "heartbeat", 1, 0), event("", "heartbeat", 1, 0, gateway="h"))
    harness.say(event("only", "connected", 1, 0), event("both", "connected", 1, 0))
    harness.say(
        event("both", "connected", 2, 0, gateway="h"), event("gone", "connected", 1, 0), event("gone", "lost", 1, 1)
    )
    harness.run()
    assert [harness.online(name) for name in ("only", "both", "gone")] == [True, True, False]

    def g_is_gone() -> bool:
        state = harness.states()[f"{GATEWAY_MARK}g"]
        assert isinstance(state, GatewayState)
        return not state.alive

    with harness.ticking(event("", "heartbeat", 1, 1, gateway="h")):
        harness.run(until=g_is_gone)
    assert [harness.online(name) for name in ("only", "both", "gone")] == [False, True, False]
    both = harness.states()["both"]
    assert isinstance(both, PresenceState)
    assert [(one.gateway, one.live) for one in both.attachments] == [("g", False), ("h", True)]
    assert harness.added() == [("both", "lost", "g", 1), ("only", "lost", "g", 1)]
    harness.say(event("", "heartbeat", 1, 9))
    harness.run()
    assert [harness.online(name) for name in ("only", "both", "gone")] == [True, True, False]
    assert harness.added()[2:] == [("both", "connected", "g", 1), ("only", "connected", "g", 1)], "it is taken back"
    of_only = [online for topic, online, _ in harness.messages() if topic == "$presence/only"]
    assert of_only == [True, False, True]
    assert harness.retained()["$presence/only"] is not None
    assert harness.retained()["$presence/gone"] is None, "retained while online"


def test_a_gateway_begun_anew_voids_what_it_had(harness: PresenceHarness) -> None:
    """R12: clients without a persistent session, of whose loss nobody tells."""
    harness.say(event("", "heartbeat", 1, 0), event("c", "connected", 1, 0), event("d", "connected", 1, 0))
    harness.run()
    harness.say(event("", "heartbeat", 2, 0, boot=2), event("d", "connected", 2, 0, boot=2))
    harness.run()
    assert (harness.online("c"), harness.online("d")) == (False, True)
    assert sorted(harness.added()) == [("c", "lost", "g", 1), ("d", "lost", "g", 1)], "a connection of each has no end"
    harness.say(event("c", "connected", 3, 0, boot=2))
    harness.run()
    assert len(harness.added()) == 2, "once"


def run_and_fail_after(harness: PresenceHarness, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query fails after so many of its writes, as if it were killed; what it writes later succeeds."""
    writes, write = [0], KafkaWriter.write

    def failing(self: KafkaWriter, records: Any) -> None:
        writes[0] += 1
        write(self, records)
        if writes[0] == step:
            raise NotWritten("as if killed")

    monkeypatch.setattr(KafkaWriter, "write", failing)
    with pytest.raises(StreamingQueryException, match="as if killed"):
        harness.run()


@pytest.mark.drawn("steps of a batch of presence", 2)
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_ends_are_the_same_whatever_step_fails(
    harness: PresenceHarness, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: the batch in which a gateway is found begun anew fails after each of its writes, and is repeated."""
    harness.say(event("", "heartbeat", 1, 0), event("c", "connected", 1, 0), event("d", "connected", 1, 0))
    harness.run()
    harness.say(event("", "heartbeat", 2, 0, boot=2), event("d", "lost", 2, 0, boot=2, reason="gateway_restarted"))
    run_and_fail_after(harness, step, monkeypatch)
    harness.run()
    assert sorted(harness.added()) == [("c", "lost", "g", 1), ("d", "lost", "g", 1)]


def test_a_silent_gateway_ends_a_connection_once_though_the_query_is_killed(
    harness: PresenceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: between the ends and the states. How long a gateway has been silent, the next process does not know."""
    harness.say(event("", "heartbeat", 1, 0), event("c", "connected", 1, 0))
    harness.run()
    killed, write = Event(), KafkaWriter.write

    def failing(self: KafkaWriter, records: Any) -> None:
        written = list(records)
        write(self, written)
        if not killed.is_set() and any(one.topic == harness.topics.presence for one in written):
            killed.set()
            raise NotWritten("as if killed")

    monkeypatch.setattr(KafkaWriter, "write", failing)
    with harness.ticking(event("", "heartbeat", 1, 1, gateway="h")):
        with suppress(StreamingQueryException):
            harness.run(until=killed.is_set)
        harness.run(until=lambda: not harness.online("c"))
    assert harness.added() == [("c", "lost", "g", 1)]


@pytest.mark.drawn("steps of a batch of published presence", 1)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_each_message_stands_on_ingress_once_whatever_step_fails(
    harness: PresenceHarness, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: the batch fails before each of its writes but the first, is repeated, and tells nobody anything twice."""
    harness.say(event("", "heartbeat", 1, 0), event("c+#%", "connected", 1, 0), event("d", "connected", 1, 0))
    run_and_fail_after(harness, step, monkeypatch)
    harness.run()
    harness.say(event("d", "disconnected", 1, 1, reason="normal_disconnection"))
    harness.run()
    messages = harness.messages()
    assert sorted(messages)[0][0] == "$presence/c%2B%23%25"
    assert sorted((topic, online) for topic, online, _ in messages) == [
        ("$presence/c%2B%23%25", True),
        ("$presence/d", False),
        ("$presence/d", True),
    ]
    assert len({message_id for _, _, message_id in messages}) == 3
    states = harness.states()
    assert (len(states), harness.online("c+#%"), harness.online("d")) == (3, True, False)


def test_messages_are_like_any_other_and_expire(harness: PresenceHarness) -> None:
    """R12: the envelope of `ingress`, at QoS 1, retained while online."""
    harness.say(event("c", "connected", 1, 0))
    harness.run()
    (message,) = harness.read(harness.topics.ingress, PARTITIONS)
    headers = dict(message.headers())
    meta = Meta.decode(headers["meta"])
    assert (list(headers), headers["src"]) == (["id", "src", "meta", "props"], b"$presence")
    assert (meta.qos, meta.retain, meta.seq) == (1, True, None)
    assert meta.expires is not None
    assert meta.expires - meta.accepted // 1000 == SETTINGS.message_expiry_s * 1000
    (retained,) = harness.read(harness.topics.retained, 1)
    headers = dict(retained.headers())
    assert headers["id"] == dict(message.headers())["id"], "a subscriber who finds it does not get it again"
    assert Meta.decode(headers["meta"]) == meta._replace(expires=None), "retained for as long as the client is online"
    assert msgspec.json.decode(message.value()) == {
        "client": "c",
        "online": True,
        "attachments": 1,
        "at_us": 1000,
        "reason": "",
    }


def test_what_was_retained_goes_when_presence_is_published_no_more(harness: PresenceHarness) -> None:
    """R12: with `presence.publish = false` nobody finds what was said before; states are told all the same."""
    harness.say(event("c", "connected", 1, 0), event("d", "connected", 1, 0))
    harness.run()
    harness.say(event("d", "lost", 1, 1))
    harness.run(publish=False)
    assert harness.retained() == {"$presence/c": None, "$presence/d": None}
    assert len(harness.messages()) == 2, "not that d has gone"
    assert (harness.online("c"), harness.online("d")) == (True, False)


def test_who_has_been_offline_for_long_is_forgotten_and_who_is_online_never(harness: PresenceHarness) -> None:
    """R12: the compacted topic does not grow for ever; a client that has been online for longer than presence is kept
    stays so when its other gateway goes."""
    harness.say(event("", "heartbeat", 1, 0), event("gone", "connected", 1, 0), event("gone", "disconnected", 1, 1))
    harness.say(event("both", "connected", 1, 0), event("both", "connected", 2, 0, gateway="h"))
    harness.run()

    def gone_is_forgotten() -> bool:
        harness.say(event("", "heartbeat", 1, 1))
        return "gone" in harness.ends()

    harness.run(until=gone_is_forgotten, kept_s=1)
    harness.say(event("", "heartbeat", 1, 2), event("both", "lost", 2, 1, gateway="h"))
    harness.run(kept_s=1)
    assert harness.ends() == ["gone"], "once"
    assert "gone" not in harness.states()
    assert harness.online("both")


def test_lost_with_its_gateway_a_client_is_offline_since_then(harness: PresenceHarness) -> None:
    """R12: and not since it had come."""
    harness.say(event("", "heartbeat", 1, 0), event("c", "connected", 1, 0))
    harness.run()
    before_us = int(time.time() * 1e6)
    harness.say(event("", "disconnected", 1, 1))
    harness.run()
    state = harness.states()["c"]
    assert isinstance(state, PresenceState)
    assert (state.online, state.reason) == (False, "gateway_lost")
    assert before_us - 5_000_000 < state.at_us < before_us + 60_000_000
