"""The router application in Real-Time Mode on a real broker: copies, order, replays."""

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from harness.processes import Program
from jobs.observe.lags import query_positions, topic_lags
from jobs.observe.progress import status_file
from jobs.stack.process import wait_until
from jobs.stack.topics import admin_client, topic_ends
from pipelines.sinks import ensure_tables
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import new_message_id, shard_of
from schemas.readiness import alongside, read_json
from schemas.topics import Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.waiting import wait_for

SHARDS = 4
MESSAGES = 300
BATCH_S = 5.0
MOST_SUSPENSIONS = 15


def environment(data: Path, bootstrap: str, prefix: str, java_home: Path) -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(java_home),
        "WAYSTATION_DATA": str(data),
        "WAYSTATION_PART": "router",
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": prefix,
        "WAYSTATION_ROUTER__BATCH_S": str(BATCH_S),
    }


def start_router(
    data: Path, environ: dict[str, str], *arguments: str, ready: str = "router", timeout_s: float = 120
) -> Program:
    """A router of both roles, unless `arguments` say otherwise, that has said under the name `ready` that it is so."""
    router = Program(data, "router", "jobs.router", *(arguments or ("--role", "both")), environ=environ)
    return router.start(timeout_s, ready=ready)


def produce(bootstrap: str, topics: Topics, count: int) -> None:
    """`count` direct messages in one partition, among them a record without envelope."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    producer.produce(topics.ingress, key=b"@poison", value=b"?", partition=0)
    for number in range(count):
        headers = ingress_headers(new_message_id(), "sender", Meta(1, "", None, 0, None), b"\0")
        producer.produce(topics.ingress, key=f"@client-{number % 7}".encode(), value=b"x", headers=headers, partition=0)  # type: ignore[arg-type]
    producer.flush(30)


class Egress:
    """Reads all of `egress`: by shard, the instructions in order, each with the router that wrote it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, shard, 0) for shard in range(SHARDS)])
        self.by_shard: dict[int, list[tuple[bytes, str]]] = defaultdict(list)

    def poll(self) -> None:
        for record in self._consumer.consume(1000, 0.2):
            assert record.error() is None
            headers: Any = record.headers()
            self.by_shard[record.partition() or 0].append((headers[4][1], headers[5][1].decode()))

    def copies(self, router: str) -> set[bytes]:
        self.poll()
        return {instruction for written in self.by_shard.values() for instruction, by in written if by == router}

    def close(self) -> None:
        self._consumer.close()


def lag_by_broker(data: Path, bootstrap: str, prefix: str) -> list[int | None]:
    """The lag of each router, as `waystation status` reckons it from the position at the end of its last batch."""
    statuses = [read_json(status_file(data, f"router-{role}")) or {} for role in ("active", "backup")]
    ends = {end.name: end.end_offsets for end in topic_ends(admin_client(bootstrap, {}), prefix)}
    topics = topic_lags(ends, {f"{n}": query_positions(status) for n, status in enumerate(statuses)})
    ingress = next(topic for topic in topics if topic.name == f"{prefix}ingress")
    return [ingress.lags.get(f"{n}") for n in range(len(statuses))]


@draw.long_test
@pytest.mark.timeout(300)
def test_two_routers_write_identical_instructions_in_order(
    broker: LocalBroker, spark: SparkSession, unique_prefix: str, java_home: Path, tmp_path: Path
) -> None:
    """R2, R3, R5, R8: both write every instruction, the same; first copies are in order; a replay after `kill -9`
    changes nothing; a poison record stops nobody; `status` can tell that they have taken everything."""
    topics = broker.topics(unique_prefix, shards=SHARDS)
    assert spark.version, "types are parsed by a session"
    ensure_tables(f"{tmp_path}/tables")
    environ = environment(tmp_path, broker.bootstrap, unique_prefix, java_home)
    egress = Egress(broker.bootstrap, topics.egress)
    router = start_router(tmp_path, environ)
    try:
        produce(broker.bootstrap, topics, MESSAGES)
        wait_for(lambda: len(egress.copies("active")) == MESSAGES, "the active router's instructions")
        wait_for(lambda: len(egress.copies("backup")) == MESSAGES, "the backup router's instructions")
        assert egress.copies("active") == egress.copies("backup")
        router.kill()
        router = start_router(tmp_path, environ)
        produce(broker.bootstrap, topics, MESSAGES)
        wait_for(lambda: len(egress.copies("active")) == 2 * MESSAGES, "instructions after the restart")
        wait_for(lambda: len(egress.copies("backup")) == 2 * MESSAGES, "the backup's after the restart")
        wait_for(lambda: set(lag_by_broker(tmp_path, broker.bootstrap, unique_prefix)) == {0}, "no lag of either")
    finally:
        router.kill()
        egress.close()
    for shard, written in egress.by_shard.items():
        first = list(dict.fromkeys(Instruction.decode(raw) for raw, _ in written))
        assert [i.offset for i in first] == sorted(i.offset for i in first)
        assert all(i.number == 0 and i.limit == 1 for i in first)
        assert len(first) == 2 * sum(shard_of(f"client-{n % 7}", SHARDS) == shard for n in range(MESSAGES))


@draw.long_test
@pytest.mark.timeout(300)
def test_realigning_and_stopping_log_no_errors(
    broker: LocalBroker, spark: SparkSession, unique_prefix: str, java_home: Path, tmp_path: Path
) -> None:
    """Both cancel a batch, which is routine: a line each, and no stack trace.

    A machine that stands still over the end of one query's batch makes that query late, and not the other.
    """
    topics = broker.topics(unique_prefix, shards=SHARDS)
    assert spark.version, "types are parsed by a session"
    ensure_tables(f"{tmp_path}/tables")
    environ = environment(tmp_path, broker.bootstrap, unique_prefix, java_home)
    router = start_router(tmp_path, environ)
    log = tmp_path / "router.log"
    try:
        produce(broker.bootstrap, topics, MESSAGES)
        suspended = 0
        while not wait_until(lambda: "realigning" in log.read_text() or router.ended(), 2 * BATCH_S):
            assert suspended < MOST_SUSPENSIONS, "nothing is realigned"
            router.suspend(0.45 * BATCH_S)  # the ends of the two queries' batches are half a batch apart
            suspended += 1
        after = log.read_text().index("realigning")
        wait_for(lambda: "query started" in log.read_text()[after:], "it goes on")
        assert router.stop(60) == 0
    finally:
        router.kill()
    said = log.read_text()
    assert "realigning" in said
    assert "ERROR" not in said
    assert "\tat " not in said


@draw.long_test
@pytest.mark.timeout(300)
def test_a_new_generation_beside_the_old_one_is_level_before_it_says_so(
    broker: LocalBroker, spark: SparkSession, unique_prefix: str, java_home: Path, tmp_path: Path
) -> None:
    """R5: it begins where the old one has committed, and when it says that it is ready all there was is on `egress`."""
    topics = broker.topics(unique_prefix, shards=SHARDS)
    assert spark.version, "types are parsed by a session"
    ensure_tables(f"{tmp_path}/tables")
    environ = environment(tmp_path, broker.bootstrap, unique_prefix, java_home) | {
        "WAYSTATION_ROUTER__STANDBY_QUERY": "false"
    }
    egress, alone = Egress(broker.bootstrap, topics.egress), ("--role", "active")
    routers = [start_router(tmp_path, environ, *alone)]
    try:
        produce(broker.bootstrap, topics, MESSAGES)
        committed = lambda: lag_by_broker(tmp_path, broker.bootstrap, unique_prefix)[0] == 0  # noqa: E731
        wait_for(committed, "the old one has committed", 120)
        once = len(egress.copies("active"))
        written = sum(map(len, egress.by_shard.values()))
        alongside_it = ("--generation", "2", "--alongside")
        routers.append(start_router(tmp_path, environ, *alone, *alongside_it, ready=alongside("router")))
        assert once == MESSAGES
        egress.poll()
        assert sum(map(len, egress.by_shard.values())) == written, "what is committed is not routed again"
        routers[0].kill()
        produce(broker.bootstrap, topics, MESSAGES)
        wait_for(lambda: len(egress.copies("active")) == 2 * MESSAGES, "the new one goes on alone")
    finally:
        for router in routers:
            router.kill()
        egress.close()
