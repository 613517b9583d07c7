"""Applications submitted to a real Spark standalone cluster of two workers, against a real broker."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from jobs.observe.progress import status_file
from jobs.query.ledger_reader import LedgerReader
from pipelines.sinks import ensure_tables
from schemas.cluster_settings import router_slots
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import new_message_id
from schemas.readiness import read_json
from schemas.topics import Topics
from tests import draw
from tests.acceptance.spark_cluster import SparkCluster
from tests.conftest import LocalBroker
from tests.waiting import wait_for

PARTITIONS = 2
SLOTS = router_slots(PARTITIONS, standby=True)
"""Of a router: no more than it needs, so that it would be seen if that were too few."""
CORES = 2 * SLOTS
"""Of a worker, which has both routers once the other is gone. A core is a task that it takes, not a processor."""
NO_PYTHON = "/nowhere/bin/python"
"""The interpreter on the machines of the cluster: not the one with which the drivers run here, and never needed."""
SHARDS = 4
ROUTERS = ("active", "backup")
FLOWING_S = 600.0
"""Nine JVMs start, on whatever else the machine does; on a quiet one of two cores a minute is enough."""

pytestmark = [pytest.mark.timeout(1800), draw.killed_or_replaced]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"), java_home, workers=2, cores=CORES)
    yield cluster
    cluster.stop()


class Submitted:
    """`waystation submit` in a process of its own, with the topics it works on."""

    def __init__(self, data: Path, broker: LocalBroker, prefix: str, cluster: SparkCluster, *arguments: str) -> None:
        self._log = data / "submit.log"
        overlay = data / "cluster.toml"
        overlay.write_text(f"""
            [kafka]
            bootstrap = "{broker.bootstrap}"
            prefix = "{prefix}"
            ingress_partitions = {PARTITIONS}
            shards = {SHARDS}
            [router]
            batch_s = 5.0
            [ledger]
            trigger_s = 2.0
            routes_trigger_s = 1.0
            [stack]
            router_java_options = '{cluster.java_options}'
            ledger_java_options = '{cluster.java_options}'
            stop_timeout_s = 90.0
            [cluster]
            master = "{cluster.master}"
            driver_host = "127.0.0.1"
            python_command = "{NO_PYTHON}"
            router = {{ driver_memory = "512m", executors = 1, cores = {SLOTS}, memory = "512m" }}
            ledger = {{ driver_memory = "512m", executors = 1, cores = 2, memory = "768m" }}
            batch = {{ driver_memory = "512m", executors = 1, cores = 2, memory = "512m" }}
        """)
        command = [sys.executable, "-m", "jobs.cli.main", "--data", str(data), "submit", "--conf", str(overlay)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)

    def log(self) -> str:
        return self._log.read_text()

    def alive(self) -> bool:
        assert self._process.poll() is None, self.log()[-4000:]
        return True

    def ended(self) -> int:
        """The status of one that ends by itself."""
        return self._process.wait(FLOWING_S)

    def stop(self) -> int:
        """SIGTERM; the status once it has ended."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(200)

    def kill(self) -> None:
        """Whatever is left of it, if a test has failed."""
        if self._process.poll() is None:
            left = psutil.Process(self._process.pid).children(recursive=True)
            for each in [*left, psutil.Process(self._process.pid)]:
                each.kill()
            self._process.wait()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)


class Messages:
    """Direct messages onto `ingress`, and the instructions for them, by the router that wrote each."""

    def __init__(self, broker: LocalBroker, topics: Topics) -> None:
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})
        group = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        self._consumer = Consumer(group)
        self._consumer.assign([TopicPartition(topics.egress, shard, 0) for shard in range(SHARDS)])
        self.sent = 0
        self.routed: dict[str, list[tuple[int, Instruction]]] = {router: [] for router in ROUTERS}

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            headers = ingress_headers(new_message_id(), "sender", Meta(1, "", None, 0, None), b"\0")
            self._producer.produce(
                self._topics.ingress,
                key=f"@client-{number % 7}".encode(),
                value=b"x",
                headers=headers,  # type: ignore[arg-type]
                partition=number % PARTITIONS,
            )
        assert self._producer.flush(30) == 0
        self.sent += count

    def all_routed_by(self, router: str) -> bool:
        for record in self._consumer.consume(1000, 0.2):
            assert record.error() is None
            headers = dict(record.headers() or [])
            instruction = Instruction.decode(headers["instr"])  # type: ignore[arg-type]
            self.routed[headers["router"].decode()].append((record.partition() or 0, instruction))  # type: ignore[union-attr]
        return len({(one.partition, one.offset) for _, one in self.routed[router]}) == self.sent

    def first_copies_in_order(self, router: str) -> bool:
        """In each partition of `egress`, those of each partition of `ingress`."""
        ways: dict[tuple[int, int], list[int]] = {}
        for shard, one in self.routed[router]:
            ways.setdefault((shard, one.partition), []).append(one.offset)
        return all(list(dict.fromkeys(offsets)) == sorted(set(offsets)) for offsets in ways.values())

    def close(self) -> None:
        self._consumer.close()


def test_a_worker_dies_under_one_router_of_the_pair(
    cluster: SparkCluster, broker: LocalBroker, spark: SparkSession, unique_prefix: str, tmp_path: Path
) -> None:
    """R2, R5: each router's executor is on a worker of its own. One worker is killed: the other router goes on, the
    killed one's application gets an executor elsewhere and routes all it missed, in order; SIGTERM ends both."""
    assert spark.version, "types are parsed by a session"
    ensure_tables(f"{tmp_path}/tables")
    messages = Messages(broker, broker.topics(unique_prefix, PARTITIONS, SHARDS))
    submitted = Submitted(tmp_path, broker, unique_prefix, cluster, "router")
    names = {router: f"waystation-router-{router}" for router in ROUTERS}
    try:
        messages.send(100)
        for router in ROUTERS:
            wait_for(
                lambda router=router: submitted.alive() and messages.all_routed_by(router),  # type: ignore[misc]
                f"the first messages routed by {router}",
                FLOWING_S,
            )
        places = {router: list(cluster.places(name)) for router, name in names.items()}
        assert all(len(workers) == 1 for workers in places.values()), places
        assert places["active"] != places["backup"]
        for router, name in names.items():
            wait_for(
                lambda name=name: submitted.alive() and cluster.tasks(name) >= SLOTS,  # type: ignore[misc]
                f"the query of {router} and its standby query have a task for every partition at once",
                FLOWING_S,
            )

        cluster.kill(places["active"][0])
        messages.send(100)
        wait_for(lambda: messages.all_routed_by("backup"), "the backup goes on", FLOWING_S)
        wait_for(lambda: messages.all_routed_by("active"), "the active has caught up", FLOWING_S)
        messages.send(100)
        wait_for(lambda: messages.all_routed_by("active"), "the active routes again", FLOWING_S)
        assert submitted.alive()
        assert list(cluster.places(names["active"])) == places["backup"]
        assert all(messages.first_copies_in_order(router) for router in ROUTERS)

        family = submitted.family()
        assert submitted.stop() == 0, submitted.log()[-4000:]
        _, left = psutil.wait_procs(family, 30)
        assert not left
        wait_for(lambda: not cluster.waiting_or_running(), "the master has no application left")
    finally:
        submitted.kill()
        messages.close()


def test_the_ledger_on_a_cluster(
    cluster: SparkCluster, broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """The ledger's executors write to a directory that they share with its driver; every message is in it once. What
    runs by night runs there too, one of it in each run of this test: maintenance, quality, which finds no fault, and an
    audit, which says that it can judge nothing yet: no router has routed."""
    batches = draw.some(("maintain", "quality", "audit"), 1, "batches on a cluster")
    messages = Messages(broker, broker.topics(unique_prefix, PARTITIONS, SHARDS))
    messages.send(200)
    messages.close()
    submitted = Submitted(tmp_path, broker, unique_prefix, cluster, "ledger")

    def rows() -> int:
        assert submitted.alive()
        reader = LedgerReader(f"{tmp_path}/tables")
        return int(reader.query("SELECT count(*) FROM messages").rows[0][0]) if "messages" in reader.tables else 0

    try:
        wait_for(lambda: rows() >= messages.sent, "all messages in the table", FLOWING_S)
        assert rows() == messages.sent
        assert read_json(status_file(tmp_path, "messages"))
        assert submitted.stop() == 0, submitted.log()[-4000:]
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        options = {"maintain": ["--with-today"], "quality": ["--settle", "0"], "audit": ["--since", today]}
        for name in batches:
            submitted = Submitted(tmp_path, broker, unique_prefix, cluster, name, "--", *options[name])
            status = submitted.ended()
            assert (status == 0) == (name != "audit"), submitted.log()[-4000:]
        if "audit" in batches:
            assert f"none of the {messages.sent} messages" in submitted.log()
            assert "audit with status 2" in submitted.log()
    finally:
        submitted.kill()
    ledger = LedgerReader(f"{tmp_path}/tables")
    assert ledger.query("SELECT count(*) FROM messages").rows[0][0] == messages.sent
    if "quality" not in batches:
        return
    [judged] = ledger.query("SELECT count(*), count(DISTINCT run_id), bool_and(success) FROM quality_results").rows
    assert judged[0] > 0
    assert judged[1:] == (1, True)
