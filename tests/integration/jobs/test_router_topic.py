"""A router whose topic is not what its checkpoint knows: said, and no message passed over in silence (Q1)."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from harness.processes import Program
from jobs.observe.progress import status_file
from jobs.stack.topics import admin_client, create_topics
from pipelines.sinks import ensure_tables
from pipelines.streams import StreamId
from schemas.readiness import read_json
from schemas.topics import DAY_MS, Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.jobs.test_router_job import (
    MESSAGES,
    SHARDS,
    Egress,
    environment,
    lag_by_broker,
    produce,
    start_router,
)
from tests.waiting import wait_for

QUERY = "router-active"
REPLACED = "was deleted and created again after query router-active had read it"
pytestmark = [pytest.mark.timeout(400), draw.long_test]


class Alone:
    """The active router of a platform by itself, with one query."""

    def __init__(self, data: Path, broker: LocalBroker, prefix: str, java_home: Path) -> None:
        self.data, self.prefix, self.bootstrap = data, prefix, broker.bootstrap
        self.topics: Topics = broker.topics(prefix, shards=SHARDS)
        self.admin: AdminClient = admin_client(broker.bootstrap, {})
        self.egress = Egress(broker.bootstrap, self.topics.egress)
        self._environment = environment(data, broker.bootstrap, prefix, java_home) | {
            "WAYSTATION_ROUTER__STANDBY_QUERY": "false",
        }

    @contextmanager
    def running(self) -> Iterator[Program]:
        router = start_router(self.data, self._environment, "--role", "active")
        try:
            yield router
        finally:
            router.stop(60)

    def produce(self) -> None:
        produce(self.bootstrap, self.topics, MESSAGES)

    def has_committed_all(self) -> bool:
        return lag_by_broker(self.data, self.bootstrap, self.prefix)[0] == 0

    def routed(self) -> int:
        return len(self.egress.copies("active"))

    def make_again(self) -> None:
        """`ingress` is deleted and made again, with the same name and as many partitions."""
        topic = self.topics.ingress
        self.admin.delete_topics([topic])[topic].result()
        wait_for(lambda: topic not in self.admin.list_topics().topics, "the topic is gone")
        create_topics(self.admin, self.topics.declared(2, SHARDS, DAY_MS))

    def status(self) -> dict[str, Any]:
        return read_json(status_file(self.data, QUERY)) or {}

    def log(self) -> str:
        return (self.data / "router.log").read_text()


@pytest.fixture
def alone(
    broker: LocalBroker, spark: SparkSession, unique_prefix: str, java_home: Path, tmp_path: Path
) -> Iterator[Alone]:
    assert spark.version, "types are parsed by a session"
    ensure_tables(f"{tmp_path}/tables")
    alone = Alone(tmp_path, broker, unique_prefix, java_home)
    yield alone
    alone.egress.close()


def test_a_topic_made_again_is_refused_until_the_checkpoint_is_removed(alone: Alone) -> None:
    """Noticed while the router runs, whether the new topic has less than the old one or more; refused whenever it is
    started; with a new checkpoint the new topic is routed whole."""
    with alone.running():
        alone.produce()
        wait_for(alone.has_committed_all, "all is committed", 120)
        wait_for(lambda: alone.routed() == MESSAGES, "all is routed")
        alone.make_again()
        alone.produce()
        alone.produce()
        wait_for(lambda: REPLACED in (alone.status().get("error") or ""), "the new topic is refused", 90)
        failures = alone.status()["failures"]
        wait_for(lambda: alone.status()["failures"] > failures, "it is tried again", 60)
        assert REPLACED in alone.status()["error"]
    shutil.rmtree(StreamId(QUERY).checkpoint(f"{alone.data}/tables"))
    with alone.running():
        wait_for(lambda: alone.routed() == 3 * MESSAGES, "the new topic is routed from its beginning", 60)


def test_what_retention_took_is_named_and_passed_over(alone: Alone) -> None:
    """Q1: a router that was down for too long says what is lost, by partition and offsets, and routes the rest."""
    with alone.running():
        alone.produce()
        wait_for(alone.has_committed_all, "all is committed", 120)
        wait_for(lambda: alone.routed() == MESSAGES, "all is routed")
    alone.produce()
    first, kept = 1 + MESSAGES, 100
    end = 2 * first - kept
    gone = TopicPartition(alone.topics.ingress, 0, end)
    alone.admin.delete_records([gone])[gone].result()
    with alone.running():
        wait_for(lambda: alone.routed() == MESSAGES + kept, "what is left is routed", 60)
    (said,) = [line for line in alone.log().splitlines() if "records lost" in line]
    assert all(str(number) in said for number in (first, end)), said
