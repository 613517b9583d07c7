"""The ledger application as a process, against a real broker: exact under kill -9, undeterred by poison and by a query
that fails."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.processes import Program
from jobs.query.ledger_reader import LedgerReader
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.events import (
    CompletionEvent,
    Event,
    PresenceEvent,
    ProgressEvent,
    RecipientOutcome,
    RouteEvent,
    decode,
    encode,
)
from schemas.identity import new_message_id, partition_of
from schemas.readiness import read_json, read_ready
from schemas.topics import Topics
from tests import draw
from tests.conftest import LocalBroker

READY_S = 180.0
SETTLED_S = 180.0
MESSAGES = 600

pytestmark = pytest.mark.timeout(600)


def eventually(what: str, condition: Callable[[], bool], deadline_s: float = SETTLED_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.25)


class Application(Program):
    """`python -m jobs.ledger`, started, killed and read by a test."""

    def __init__(self, data: Path, broker: LocalBroker, prefix: str, java_home: Path) -> None:
        self.topics: Topics = broker.topics(prefix)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap})
        self.consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": prefix})
        environ = os.environ | {
            "JAVA_HOME": str(java_home),
            "WAYSTATION_KAFKA__BOOTSTRAP": broker.bootstrap,
            "WAYSTATION_KAFKA__PREFIX": prefix,
            "WAYSTATION_LEDGER__TRIGGER_S": "1.0",
            "WAYSTATION_LEDGER__COMPLETION_TRIGGER_S": "1.0",
            "WAYSTATION_LEDGER__ROUTES_TRIGGER_S": "0.5",
            "WAYSTATION_LEDGER__RESTART_BACKOFF_S": "1.0",
            # What it publishes itself would be counted among the messages: see test_pipelines_presence.
            "WAYSTATION_PRESENCE__PUBLISH": "false",
        }
        super().__init__(data, "ledger", "jobs.ledger", environ=environ)

    def produce(self, topic: str, key: str, value: Event | bytes, **more: Any) -> None:
        raw = value if isinstance(value, bytes) else encode(value)
        self.producer.produce(topic, key=key, value=raw, **more)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return list(LedgerReader(f"{self.data}/tables").query(sql).rows)

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT count(*) FROM {table}")[0][0])

    def status(self, query: str) -> dict[str, Any]:
        return read_json(self.data / "status" / f"{query}.json") or {}

    def readiness(self) -> dict[str, str]:
        """What is wrong, by part, as `/readyz` says it; empty if all is well."""
        address = (read_ready(self.data, "ledger") or {})["listeners"]["ledger-metrics"]
        try:
            with urlopen(f"http://{address}/readyz", timeout=20) as answer:
                report = json.load(answer)
        except HTTPError as refused:
            with refused:
                report = json.load(refused)
        return {name: part["detail"] for name, part in report["parts"].items() if not part["ready"]}

    def completions(self) -> list[CompletionEvent]:
        """All there is on the topic `completion`."""
        partitions = [TopicPartition(self.topics.completion, n, 0) for n in range(2)]
        ends = [self.consumer.get_watermark_offsets(partition)[1] for partition in partitions]
        self.consumer.assign(partitions)
        records = self.consumer.consume(sum(ends), 10) if sum(ends) else []
        return [decode(CompletionEvent, record.value() or b"") for record in records]


@pytest.fixture(scope="module")
def application(
    broker: LocalBroker, java_home: Path, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    application = Application(tmp_path_factory.mktemp("ledger"), broker, "tledgerjob.", java_home)
    application.start(READY_S)
    yield application
    application.consumer.close()
    application.kill()


def send(application: Application, first: int, end: int) -> list[str]:
    """The messages' ids: number n goes to n % 3 shards (to nobody: untouched), by both routers, each home repeating its
    relinquish once; a client comes and a route begins with each tenth."""
    topics, ids = application.topics, []
    for n in range(first, end):
        message, shards, now_ms = new_message_id(), [(n + k) % 4 for k in range(n % 3)], int(time.time() * 1000)
        ids.append(message)
        headers = ingress_headers(message, f"sender-{n}", Meta(1, "", None, now_ms * 1000, None), b"")
        application.produce(topics.ingress, "a/b", str(n).encode(), headers=headers, partition=n % 2)
        fields = {"id": message, "partition": n % 2, "offset": n // 2, "appended_ms": now_ms}
        for router in ("active", "backup"):
            for number, shard in enumerate(shards):
                limit = len(shards) if number == len(shards) - 1 else None
                instruction = Instruction(n % 2, n // 2, number, limit, now_ms)
                more = [("instr", instruction.encode()), ("router", router.encode())]
                application.produce(topics.egress, "a/b", b"x", headers=[*headers, *more], partition=shard)
                delivery = RecipientOutcome(client=f"c{shard}", outcome="delivered", qos=1, at_us=now_ms * 1000)
                done = ProgressEvent(
                    kind="relinquish", shard=shard, number=number, limit=limit, deliveries=[delivery], **fields
                )  # type: ignore[arg-type]
                application.produce(topics.progress, message, done, partition=partition_of(message, 2))
            if not shards:
                untouched = ProgressEvent(kind="untouched", limit=0, **fields)  # type: ignore[arg-type]
                application.produce(topics.progress, message, untouched, partition=partition_of(message, 2))
        if n % 10 == 0:
            came = PresenceEvent(client=f"c{n}", event="connected", gateway="g", epoch=1, seq=n, at_us=now_ms * 1000)
            application.produce(topics.presence, f"c{n}", came)
            route = RouteEvent(op="add", route_key=f"k/{n % 40}", shard=n % 4)
            application.produce(topics.routes, route.kafka_key, route, partition=0)
        application.producer.poll(0)
    assert application.producer.flush(60) == 0
    return ids


@draw.long_test
def test_queries_without_work_hold_up_no_other(application: Application) -> None:
    """With nothing on any topic every query begins, one after the other."""
    eventually("all are ready", lambda: application.readiness() == {})
    eventually("it says so", lambda: bool((read_ready(application.data, "ledger") or {}).get("settled")))


@draw.long_test
def test_exact_when_killed_under_load(application: Application) -> None:
    """Q1, R3, R4, R7, R12: killed with all queries at work, and started again: every message, instruction, outcome,
    completion, coming and route event is in its table once."""
    ids = send(application, 0, MESSAGES // 2)
    eventually("the first rows", lambda: application.count("messages") > 0)
    ids += send(application, MESSAGES // 2, MESSAGES - 100)
    application.kill()
    ids += send(application, MESSAGES - 100, MESSAGES)
    application.start(READY_S)

    instructions = sum(n % 3 for n in range(MESSAGES))
    untouched = sum(n % 3 == 0 for n in range(MESSAGES))
    expected = {
        "messages": MESSAGES,
        "instructions": instructions,
        "outcomes": instructions + untouched,
        "completions": MESSAGES,
        "presence_history": MESSAGES // 10,
        "routes_history": MESSAGES // 10,
        "quarantine": 0,
    }

    def counts() -> dict[str, int]:
        return {table: application.count(table) for table in expected}

    eventually("all rows", lambda: all(counts()[table] >= rows for table, rows in expected.items()))
    assert counts() == expected
    found = application.query("SELECT id, CAST(decode(payload) AS INTEGER) FROM messages")
    assert dict(found) == {message: n for n, message in enumerate(ids)}
    keys = application.query('SELECT "partition", "offset", shard, scope, count(*) FROM instructions GROUP BY ALL')
    assert len(keys) == instructions
    touches = dict(application.query("SELECT message_id, touches FROM completions"))
    assert touches == {message: n % 3 for n, message in enumerate(ids)}
    routes = application.query("SELECT route_key, len(targets), as_of IS NULL FROM routes ORDER BY ALL")
    assert routes == [("#", 0, False), *((f"k/{n}", 1, True) for n in (0, 10, 20, 30))]
    published = Counter(event.id for event in application.completions())
    assert published.keys() == set(ids)
    steps = application.query(f"SELECT step FROM message_journey WHERE message_id = '{ids[2]}'")
    assert Counter(step for (step,) in steps) == Counter(
        {"accepted": 1, "appended": 1, "routed": 2, "delivered": 2, "completed": 1}
    )


@draw.long_test
def test_poison_is_quarantined_and_the_queries_go_on(application: Application) -> None:
    """A record of each topic that cannot be parsed goes to `quarantine` with its reason; what follows it is read."""
    topics, before = application.topics, application.count("messages")
    poisoned = [getattr(topics, t) for t in ("ingress", "egress", "progress", "completion", "presence", "routes")]
    for topic in poisoned:
        application.produce(topic, "k", b"\xff not JSON", partition=0)
    application.produce(topics.quarantine, "k", b"nor this")
    send(application, MESSAGES, MESSAGES + 9)
    eventually("seven rows in quarantine", lambda: application.count("quarantine") >= 7)
    eventually("the messages after", lambda: application.count("messages") == before + 9)
    rows = application.query("SELECT topic, reason FROM quarantine")
    assert sorted(topic for topic, _ in rows) == sorted([*poisoned, topics.quarantine])
    assert all(reason for _, reason in rows)


def test_a_failing_query_is_restarted_and_stops_no_other(application: Application) -> None:
    """With its checkpoints gone the query fails and says so; the others go on; with them back, it goes on by itself."""
    checkpoints = application.data / "tables" / "presence_history" / "_checkpoints"
    eventually("its first batch", checkpoints.exists)
    before = application.count("messages"), application.count("presence_history")
    checkpoints.rename(checkpoints.with_name("_gone"))
    checkpoints.write_text("in the way")
    send(application, 2 * MESSAGES, 2 * MESSAGES + 11)  # clients not seen before: repeated events are left out
    eventually("an error in the status file", lambda: bool(application.status("presence_history").get("error")))
    eventually("it alone is not ready", lambda: application.readiness().keys() == {"presence_history"})
    eventually("the messages meanwhile", lambda: application.count("messages") == before[0] + 11)
    assert application.status("messages")["error"] is None
    checkpoints.unlink()
    checkpoints.with_name("_gone").rename(checkpoints)
    eventually("the comings, late", lambda: application.count("presence_history") == before[1] + 2)
    eventually("no error any more", lambda: application.status("presence_history")["error"] is None)
    eventually("all are ready", lambda: application.readiness() == {})
    assert application.status("presence_history")["failures"] >= 1


def test_sigterm_ends_it_cleanly(application: Application) -> None:
    """SIGTERM: status 0, no process left."""
    family = psutil.Process(application.pid).children(recursive=True)
    assert application.stop() == 0
    _, alive = psutil.wait_procs(family, 10)
    assert not alive
