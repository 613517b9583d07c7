"""All queries of the ledger in one session, on topics and tables of their own, and what is to become of their records.

A *round* gives each query records of its own and ends what the round before began, so that states go over batches. What
the tables must hold follows from the rounds alone (:meth:`LedgerHarness.expected`); :meth:`LedgerHarness.found` is what
they hold.
"""

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from feeds.message import FEEDS, FeedMessage
from feeds.message import encode as encode_copy
from feeds.passed import PassedRecord
from feeds.passed import encode as encode_passed
from jobs.ledger.queries import queries
from jobs.stack.topics import admin_client, create_topics
from pipelines.sinks import ensure_tables
from schemas.envelope import Headers, Instruction, Meta, ingress_headers
from schemas.events import (
    CompletionEvent,
    Event,
    MessagePresenceEvent,
    PresenceEvent,
    ProgressEvent,
    QuarantineEvent,
    RecipientOutcome,
    RouteEvent,
    encode,
)
from schemas.identity import derived_message_id
from schemas.settings import Settings, process_settings
from schemas.states import Attachment, MessagePresenceState, PresenceState
from schemas.tables import FAR_FUTURE
from schemas.topics import Topic, Topics
from tests.conftest import LocalBroker

QUERIES = (
    "routes", "completion", "presence_state", "message_presence_state", "messages", "instructions", "outcomes",
    "completions", "presence_history", "routes_history", "message_presence_history", "presence", "message_presence",
    "feed_copies", "quarantine",
)  # fmt: skip
"""In an order in which each comes after those that write what it reads."""

AT_ONCE = 4
"""Queries that run at a time: those that rest would look for records all the while."""

TICKS = 12
FEED_STREAM = "radar@3"
FAR_FUTURE_US = int(FAR_FUTURE.timestamp()) * 1_000_000
SENT_MS = 1_700_000_000_000
"""When all was done, by the clocks of those who did it: years before it was appended."""

MESSAGE = re.compile(rb"[mu]\d+")
"""Keys of messages, as rounds name them."""

Found = Mapping[str, Any]


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


def message_id(name: str) -> str:
    return derived_message_id("faults", name)


class LedgerHarness:
    """`clock_s` is how far the clock of the ledger's machine is off."""

    def __init__(self, spark: SparkSession, broker: LocalBroker, prefix: str, data: Path) -> None:
        self.topics: Topics = broker.topics(prefix)
        self._broker = broker
        self.make_feed(0)
        self.rounds = 0
        self.clock_s = 0.0
        self.bad: list[Place] = []
        self._began_ms = int(time.time() * 1000)
        self._spark = spark
        self._bootstrap = broker.bootstrap
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self.settings: Settings = process_settings(
            {
                "WAYSTATION_DATA": str(data),
                "WAYSTATION_KAFKA__BOOTSTRAP": broker.bootstrap,
                "WAYSTATION_KAFKA__PREFIX": prefix,
                "WAYSTATION_LEDGER__TRIGGER_S": "0.1",
                "WAYSTATION_LEDGER__COMPLETION_TRIGGER_S": "0.1",
                "WAYSTATION_LEDGER__ROUTES_TRIGGER_S": "0.1",
                "WAYSTATION_PRESENCE__TRIGGER_S": "0.1",
                "WAYSTATION_PRESENCE__TABLE_TRIGGER_S": "0.1",
            }
        )
        ensure_tables(self.settings.tables)

    # what the queries do

    def starts(self) -> Mapping[str, Callable[[], StreamingQuery]]:
        return queries(self._spark, self.settings, lambda: time.time() + self.clock_s)

    def run(self, names: Sequence[str] = QUERIES) -> dict[str, str]:
        """Starts queries, lets them take all there is, and stops them; why those failed that did."""
        starts, failed = self.starts(), dict[str, str]()
        waiting, running = deque(names), dict[str, StreamingQuery]()
        try:
            for name in names:
                while waiting and len(running) < AT_ONCE:
                    running[waiting[0]] = starts[waiting[0]]()
                    waiting.popleft()
                try:
                    running[name].processAllAvailable()
                except StreamingQueryException as error:
                    failed[name] = str(error)
                running.pop(name).stop()
        finally:
            for query in running.values():
                query.stop()
        return failed

    def checkpoint(self, query: str) -> Path:
        tables = Path(self.settings.tables)
        beside = tables / "_checkpoints" / f"{query}-1"
        return beside if beside.exists() else tables / query / "_checkpoints" / f"{query}-1"

    # what they read

    def say_round(self) -> None:
        """The records of the next round, a bad one of a later version on each topic among them."""
        n = self.rounds
        self.rounds += 1
        for say in (self._messages, self._progress, self._presence, self._routes, self._mesh, self._feeds, self._told):
            say(n)
        self._later_versions(n)
        self.flush()

    def say(self, topic: str, key: str | bytes | None, value: Event | bytes | None, **more: Any) -> None:
        raw = encode(value) if isinstance(value, Event) else value
        self._producer.produce(topic, key=key, value=raw, **more)

    def say_bad(self, topic: str, key: str | bytes | None, value: bytes | None, **more: Any) -> None:
        """A record that is to be in quarantine once."""

        def stored(error: KafkaError | None, record: Message) -> None:
            assert error is None, error.str()
            partition, offset = record.partition(), record.offset()
            assert partition is not None
            assert offset is not None
            self.bad.append(Place(topic, partition, offset))

        self._producer.produce(topic, key=key, value=value, on_delivery=stored, **more)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def _messages(self, n: int) -> None:
        for part in range(3):
            name = f"{n}.{part}"
            self.say(self.topics.ingress, "a/b", name.encode(), headers=self._headers(name), partition=part % 2)
        for router in ("active", "backup"):
            # An instruction of this round, and a copy of one of the round before.
            for number in range(max(0, n - 1), n + 1):
                self.say(self.topics.egress, "a/b", b"x", headers=self._instruction(number, router), partition=1)

    def _headers(self, name: str, version: str = "") -> Headers:
        meta = Meta(1, "", None, SENT_MS * 1000, None)
        headers = ingress_headers(message_id(name), "sender", meta, b"\0")
        return [(key, b"2" + value[1:] if version and key == "meta" else value) for key, value in headers]

    def _instruction(self, n: int, router: str) -> Headers:
        instr = Instruction(0, n, 0, 1, self._began_ms + n).encode()
        return [*self._headers(f"{n}.0"), ("instr", instr), ("router", router.encode())]

    def _progress(self, n: int) -> None:
        """The first of two instructions of message n, and the second of message n - 1; each twice. And a message that
        nobody wants."""
        now_ms = self._began_ms
        for number, message in ((0, n), (1, n - 1)):
            fields = {"id": f"m{message}", "partition": 0, "offset": message, "appended_ms": self._began_ms + message}
            delivery = RecipientOutcome(client=f"c{number}", outcome="delivered", qos=1, at_us=SENT_MS * 1000)
            limit = 2 if number else None
            done = ProgressEvent(
                kind="relinquish", shard=number, number=number, limit=limit, deliveries=[delivery], **fields
            )  # type: ignore[arg-type]
            for _ in range(2 if message >= 0 else 0):
                self.say(self.topics.progress, done.id, done, partition=message % 2)
        unwanted = ProgressEvent(kind="untouched", id=f"u{n}", partition=0, offset=n, appended_ms=now_ms, limit=0)
        self.say(self.topics.progress, unwanted.id, unwanted, partition=0)
        direct = CompletionEvent(id=f"direct{n}", touches=1, appended_ms=now_ms, completed_ms=now_ms)
        self.say(self.topics.completion, direct.id, direct, partition=0)

    def _presence(self, n: int) -> None:
        """Client n comes, client n - 1 goes; each is said twice."""
        fields = {"gateway": "g", "at_us": SENT_MS * 1000, "boot": 1}
        came = PresenceEvent(client=f"c{n}", event="connected", epoch=n, seq=0, **fields)  # type: ignore[arg-type]
        gone = PresenceEvent(client=f"c{n - 1}", event="lost", epoch=n - 1, seq=1, reason="why", **fields)  # type: ignore[arg-type]
        alive = PresenceEvent(client="", event="heartbeat", epoch=0, seq=n, **fields)  # type: ignore[arg-type]
        for event in (alive, came, *([gone] if n else [])):
            self.say(self.topics.presence, event.kafka_key, event, partition=0)

    def _routes(self, n: int) -> None:
        self.say(self.topics.routes, f"1:k/{n}", RouteEvent(op="add", route_key=f"k/{n}", shard=1))
        if n:
            self.say(self.topics.routes, f"1:k/{n - 1}", RouteEvent(op="drop", route_key=f"k/{n - 1}", shard=1))
        for _ in range(TICKS):
            self.say(self.topics.routes, "tick", RouteEvent(op="tick"))

    def _mesh(self, n: int) -> None:
        at_us = SENT_MS * 1000 + n
        tries = MessagePresenceEvent(id=f"m{n}", event="attempting", agent="a", at_us=at_us, origin="a")
        brings = MessagePresenceEvent(id=f"m{n - 1}", event="delivered", agent="b", peer="z", at_us=at_us)
        for event in (tries, *([brings] if n else [])):
            self.say(self.topics.message_presence, event.id, event, partition=0)

    def make_feed(self, n: int | str) -> None:
        """The topic of feed n, if it is not there."""
        topic = Topic(self.topics.feed(str(n)), 2, {"message.timestamp.type": "LogAppendTime"})
        create_topics(admin_client(self._broker.bootstrap, {}), [topic])

    def _feeds(self, n: int) -> None:
        """Number n of feed n, from both adapters, and again that of the round before, after an adapter's restart; and a
        feed's word that it has passed the number."""
        self.make_feed(n + 1)
        for number in range(max(0, n - 1), n + 1):
            for feed in FEEDS:
                copy = FeedMessage(FEED_STREAM, number, 0, number, SENT_MS * 1000, feed.name, b"%d" % number)
                key, headers, value = encode_copy(copy)
                self.say(self.topics.feed(str(number)), key, value, headers=headers, partition=int(feed))
        key, headers, _ = encode_passed(PassedRecord(FEED_STREAM, n + 9, n, SENT_MS * 1000, "BACKUP"))
        self.say(self.topics.feed(str(n)), key, None, headers=headers, partition=1)
        later = [("feed", b"2;1;0;1;1;a")]
        self.say_bad(self.topics.feed(str(n)), FEED_STREAM, b"x", headers=later, partition=0)

    def _told(self, n: int) -> None:
        """What other queries write, for those that read it: each has something new in each round."""
        attachment = Attachment(
            gateway="h", attachment="", boot=1, epoch=1, seq=0, event="connected", live=True, since_us=SENT_MS * 1000,
            at_us=SENT_MS * 1000, peer="", protocol="mqtt5", reason="", user="",
        )  # fmt: skip
        client = PresenceState(
            client=f"told{n}", online=True, at_us=SENT_MS * 1000, reason="", attachments=[attachment]
        )
        self.say(self.topics.presence_state, client.client, client, partition=1)
        message = MessagePresenceState(
            id=f"told{n}", state="pending", origin="a", delivered_by="", delivered_to="", delivered_us=0, holders=["a"],
            attempting=["a"], refused=[], claim=None, retired=False, kept_until_ms=SENT_MS, judged=-1,
        )  # fmt: skip
        self.say(self.topics.message_presence_state, message.id, message, partition=1)
        found = QuarantineEvent(topic="elsewhere", partition=0, offset=n, reason="why", record="", at_us=1)
        self.say(self.topics.quarantine, "elsewhere", found)

    def _later_versions(self, n: int) -> None:
        topics = self.topics
        self.say_bad(topics.ingress, "a/b", b"", headers=self._headers(f"{n}.0", "2"), partition=0)
        changed = [
            ("id", b"x"),
            ("src", b"x"),
            ("meta", b"2"),
            ("props", b"\0"),
            ("instr", b"2"),
            ("router", b"active"),
        ]
        self.say_bad(topics.egress, "a/b", b"", headers=changed, partition=1)
        for topic in (
            topics.progress, topics.completion, topics.presence, topics.routes, topics.message_presence,
            topics.presence_state, topics.message_presence_state, topics.quarantine,
        ):  # fmt: skip
            self.say_bad(topic, f"later{n}", b'{"v":2,"all":"else"}', partition=0)

    # what becomes of it

    def expected(self) -> Found:
        """By query, what is to be found when all rounds are taken."""
        rounds = range(self.rounds)
        over = range(self.rounds - 1)
        last = self.rounds - 1
        completed = {*(f"m{n}" for n in over), *(f"u{n}" for n in rounds)}
        told_of = [f"told{n}" for n in rounds]
        return {
            "routes": sorted((f"k/{n}", n == last) for n in rounds),
            "routes_history": Counter([*(("add", f"k/{n}") for n in rounds), *(("drop", f"k/{n}") for n in over)]),
            "completion": completed,
            "completions": Counter([*completed, *(f"direct{n}" for n in rounds)]),
            "messages": Counter(f"{n}.{part}" for n in rounds for part in range(3)),
            "instructions": Counter(message_id(f"{n}.0") for n in rounds),
            "outcomes": Counter(
                [
                    *((f"m{n}", "c0") for n in rounds),
                    *((f"m{n}", "c1") for n in over),
                    *((f"u{n}", None) for n in rounds),
                ]
            ),
            "presence_state": Counter([*((f"c{n}", True) for n in rounds), *((f"c{n}", False) for n in over)]),
            "presence_history": Counter(
                [*((f"c{n}", "connected") for n in rounds), *((f"c{n}", "lost") for n in over)]
            ),
            "presence": Counter([*((f"c{n}", n == last) for n in rounds), *((name, True) for name in told_of)]),
            "message_presence_state": {f"m{n}": "pending" if n == last else "delivered" for n in rounds},
            "message_presence_history": Counter(
                [*((f"m{n}", "attempting") for n in rounds), *((f"m{n}", "delivered") for n in over)]
            ),
            "message_presence": Counter(
                [
                    *((f"m{n}", "pending" if n == last else "delivered") for n in rounds),
                    *((name, "pending") for name in told_of),
                ]
            ),
            "feed_copies": (
                Counter((str(n), n, slot) for n in rounds for slot in ("active", "backup")),
                [(2 * self.rounds, 2 * self.rounds - 2, sum(n + 9 for n in rounds))],
            ),
            "quarantine": Counter([*self.bad, *(Place("elsewhere", 0, n) for n in rounds)]),
        }

    def found(self) -> Found:
        """The same, of the tables and topics; what is there once is counted once."""
        topics = self.topics
        return {
            "routes": self.rows(
                f"SELECT route_key, epoch_us(targets[1].effective_until) = {FAR_FUTURE_US} FROM routes "
                "WHERE len(targets) = 1 ORDER BY 1"
            ),
            "routes_history": Counter(self.rows("SELECT op, route_key FROM routes_history")),
            "completion": {
                message.key().decode()  # type: ignore[union-attr]
                for message in self.records(topics.completion)
                if MESSAGE.fullmatch(message.key() or b"")
            },
            "completions": Counter(name for (name,) in self.rows("SELECT message_id FROM completions")),
            "messages": Counter(
                text for (text,) in self.rows("SELECT decode(payload) FROM messages WHERE source = 'sender'")
            ),
            "instructions": Counter(name for (name,) in self.rows("SELECT message_id FROM instructions")),
            "outcomes": Counter(self.rows("SELECT message_id, client FROM outcomes")),
            "presence_state": Counter(
                (said["client"], said["online"])
                for (payload,) in self.rows("SELECT payload FROM messages WHERE source = '$presence'")
                for said in [msgspec.json.decode(payload)]
            ),
            "presence_history": Counter(self.rows("SELECT client, event FROM presence_history")),
            "presence": Counter(self.rows("SELECT client, online FROM presence")),
            "message_presence_state": {
                message.key().decode(): msgspec.json.decode(message.value())["state"]  # type: ignore[arg-type]
                for message in self.records(topics.message_presence_state)
                if MESSAGE.fullmatch(message.key() or b"")
            },
            "message_presence_history": Counter(self.rows("SELECT message_id, event FROM message_presence_history")),
            "message_presence": Counter(self.rows("SELECT message_id, state FROM message_presence")),
            "feed_copies": (
                Counter(self.rows("SELECT feed, sequence, slot FROM feed_copies")),
                self.rows("SELECT sum(copies), sum(duplicates), sum(passed) FROM feed_progress"),
            ),
            "quarantine": Counter(
                Place(*row) for row in self.rows('SELECT topic, "partition", "offset" FROM quarantine')
            ),
        }

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a table named in `FROM`, its rows."""
        name = sql.split(" FROM ")[1].split()[0]
        database = duckdb.connect()
        database.register(name, DeltaTable(f"{self.settings.tables}/{name}").to_pyarrow_table())
        return database.execute(sql).fetchall()

    def end(self, topic: str, partition: int) -> int:
        consumer = self._consumer()
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition))[1])
        finally:
            consumer.close()

    def records(self, topic: str) -> list[Message]:
        """All that stands on a topic of two partitions."""
        found: list[Message] = []
        for partition in range(2):
            where, end = TopicPartition(topic, partition, 0), self.end(topic, partition)
            consumer = self._consumer()
            try:
                consumer.assign([where])
                found += consumer.consume(end, 10) if end else []
            finally:
                consumer.close()
        return found

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False})
