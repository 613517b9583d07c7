"""Spark, the gateway and leases against a broker that asks for TLS and a password, with the rights of the manifests."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from harness.processes import Program
from jobs.errors import LeaseError
from jobs.observe.progress import first_line
from jobs.runtime.lease import Lease
from jobs.stack.topics import admin_client, topic_ends
from pipelines.kafka.broker_topics import KafkaTopics
from pipelines.kafka.writer import KafkaWriter, NotWritten, Out
from pipelines.sources import Kafka, topic_stream
from schemas.readiness import read_ready
from schemas.settings import KafkaSettings, load_settings
from schemas.topics import NO_GROUP, Topics
from tests.conftest import LocalBroker
from tests.integration.jobs.secure_broker import GATEWAY, MECHANISM, PASSWORD, SPARK, SecureBroker, secure_broker
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure"), java_home) as broker:
        yield broker


def copied(spark: SparkSession, kafka: Kafka, source: str, target: str, directory: Path) -> None:
    """All of one topic onto another, as the ledger reads and writes."""
    records = topic_stream(spark, kafka, [source], 1000).select("key", "value")
    writer = records.writeStream.format("kafka").options(**kafka.options()).option("topic", target)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_spark_reads_and_writes(secure: SecureBroker, spark: SparkSession, unique_prefix: str, tmp_path: Path) -> None:
    """With the settings of librdkafka, a PEM file of the authority among them, and a password of any characters."""
    topics = secure.topics(unique_prefix)
    producer = Producer({**secure.client(GATEWAY), "bootstrap.servers": secure.secure})
    for number in range(20):
        producer.produce(topics.ingress, key=b"k", value=str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    copied(spark, Kafka(secure.secure, secure.client(SPARK)), topics.ingress, topics.quarantine, tmp_path)
    consumer = Consumer({**secure.client(SPARK), "bootstrap.servers": secure.secure, "group.id": NO_GROUP})
    consumer.assign([TopicPartition(topics.quarantine, 0, 0)])
    try:
        assert [record.value() for record in consumer.consume(20, 30)] == [str(n).encode() for n in range(20)]
    finally:
        consumer.close()


def test_spark_says_that_the_password_is_wrong(
    secure: SecureBroker, spark: SparkSession, unique_prefix: str, tmp_path: Path
) -> None:
    """And not what it was."""
    topics = secure.topics(unique_prefix)
    kafka = Kafka(secure.secure, secure.client(SPARK, "not-the-password"))
    with pytest.raises(PySparkException) as raised:
        copied(spark, kafka, topics.ingress, topics.quarantine, tmp_path)
    assert "Authentication failed" in str(raised.value)
    assert "not-the-password" not in first_line(str(raised.value))


def test_the_ledger_reads_and_writes_on_its_own(secure: SecureBroker, unique_prefix: str) -> None:
    """For presence: in the consumer group that it asks for and keeps nothing in; and it sees how topics stand."""
    topics = secure.topics(unique_prefix)
    kafka = Kafka(secure.secure, secure.client(SPARK))
    writer = KafkaWriter(kafka)
    writer.write([Out(topics.ingress, 0, b"k", b"told")])
    assert [record.value() for record in writer.since(topics.ingress, 2, 0)] == [b"told"]
    ends = topic_ends(admin_client(kafka.bootstrap, kafka.client), unique_prefix)
    assert {end.name: sum(end.end_offsets) for end in ends}[topics.ingress] == 1
    assert KafkaTopics(kafka).read(topics.ingress).name == topics.ingress


def test_nobody_has_rights_on_the_topics_of_others(secure: SecureBroker, unique_prefix: str) -> None:
    """So that the other tests here would find a right that is missing."""
    other = f"not-{unique_prefix}"
    LocalBroker(secure.bootstrap).topics(other)
    writer = KafkaWriter(Kafka(secure.secure, secure.client(SPARK)))
    with pytest.raises(NotWritten, match="authorization failed"):
        writer.write([Out(Topics(other).ingress, 0, b"k", b"told")])


def lease(secure: SecureBroker, prefix: str, password: str) -> Lease:
    kafka = KafkaSettings(
        bootstrap=secure.secure,
        prefix=prefix,
        ingress_partitions=2,
        shards=4,
        retention_days=1,
        client=secure.client(SPARK, password),
        password_file="",
    )
    return Lease(kafka, "ledger", 6.0, Event(), Event().set)


def test_a_lease_is_granted_and_a_wrong_password_is_told(secure: SecureBroker, unique_prefix: str) -> None:
    """So a driver on a cluster ends with one sentence before Spark has begun."""
    secure.topics(unique_prefix)
    lease(secure, unique_prefix, PASSWORD).close()
    with pytest.raises(LeaseError, match=r"refused the connection: .*Authentication failed"):
        lease(secure, unique_prefix, "wrong")


def secure_gateway(secure: SecureBroker, prefix: str, directory: Path, password: str) -> Program:
    """With the password in a file of its own (`kafka.password_file`)."""
    secret, overlay = directory / "password", directory / "secure.toml"
    secret.write_text(password + "\n")
    overlay.write_text(f"""
        [kafka]
        bootstrap = "{secure.secure}"
        prefix = "{prefix}"
        password_file = "{secret}"
        [kafka.client]
        "security.protocol" = "SASL_SSL"
        "sasl.mechanisms" = "{MECHANISM}"
        "sasl.username" = "{GATEWAY}"
        "ssl.ca.location" = "{secure.authority.file}"
        [gateway]
        mqtt_port = 0
        websocket_port = 0
        http_port = 0
        metrics_port = 0
    """)
    assert load_settings([ROOT / "conf" / "base.toml", overlay], {}).kafka.client.get("sasl.password") is None
    configuration = os.pathsep.join([str(ROOT / "conf" / "base.toml"), str(overlay)])
    return Program(directory, "gateway", "gateway", environ=os.environ | {"WAYSTATION_CONF": configuration})


def test_the_gateway_connects(secure: SecureBroker, unique_prefix: str, tmp_path: Path) -> None:
    secure.topics(unique_prefix)
    with secure_gateway(secure, unique_prefix, tmp_path, PASSWORD).running() as gateway:
        assert not gateway.ended()


def test_the_gateway_says_that_the_password_is_wrong(secure: SecureBroker, unique_prefix: str, tmp_path: Path) -> None:
    """In its log, and not what it was; it is not ready."""
    secure.topics(unique_prefix)
    gateway = secure_gateway(secure, unique_prefix, tmp_path, "not-the-password")
    gateway.launch()
    try:
        wait_for(lambda: "Authentication failed" in gateway.log(), "the reason in the log")
        assert read_ready(tmp_path, "gateway") is None
        assert "not-the-password" not in gateway.log()
    finally:
        gateway.stop()
