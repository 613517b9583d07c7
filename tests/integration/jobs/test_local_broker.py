"""The local broker for real: up, topics, killed, up again with its records; a taken port."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from jobs.errors import PortTaken, TopicsError
from jobs.stack import jars as jar_sets
from jobs.stack.broker import BrokerSpec, answers, cluster_id, prepare
from jobs.stack.parts import broker_spec, choose_addresses
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all, wait_until
from jobs.stack.topics import admin_client, create_topics, declared_topics, topic_ends
from schemas.settings import process_settings
from tests import draw

DEADLINE_S = 60.0
PAYLOAD_BYTES = 1 << 20

Start = Callable[[], ManagedProcess]


def spec_of(data: Path) -> BrokerSpec:
    """As `waystation up` would have it, with a payload limit of 1 MiB."""
    return broker_spec(process_settings({}), data, choose_addresses(process_settings({}), data, free_ports=True))


@pytest.fixture
def start(tmp_path: Path, java_home: Path, jars: Path) -> Iterator[Start]:
    started: list[ManagedProcess] = []

    def start_one() -> ManagedProcess:
        spec = spec_of(tmp_path)
        argv = prepare(spec, str(java_home / "bin" / "java"), jar_sets.kafka_classpath())
        process = ManagedProcess(argv, os.environ, tmp_path / "broker.log")
        started.append(process)
        assert wait_until(lambda: process.ended() or answers(spec), DEADLINE_S)
        assert not process.ended(), (tmp_path / "broker.log").read_text()
        return process

    yield start_one
    for process in started:
        process.kill()
        wait_until(process.ended, DEADLINE_S)


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": 2 * PAYLOAD_BYTES})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failures == [None]


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def read_on() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return len(values) >= count

    try:
        assert wait_until(read_on, DEADLINE_S)
    finally:
        consumer.close()
    return values


@draw.long_test
def test_what_was_acknowledged_is_there_after_kill_9(start: Start, tmp_path: Path) -> None:
    process = start()
    spec = spec_of_running(tmp_path)
    settings = process_settings({})
    kafka = settings.kafka
    admin = admin_client(spec.bootstrap, {})
    created = create_topics(admin, declared_topics(settings))
    assert set(created) == {topic.name for topic in declared_topics(settings)}
    assert create_topics(admin, declared_topics(settings)) == []
    ingress, largest = kafka.prefix + "ingress", b"x" * PAYLOAD_BYTES
    produce(spec.bootstrap, ingress, b"before")
    produce(spec.bootstrap, ingress, largest)

    os.kill(process.identity.pid, signal.SIGKILL)
    assert wait_until(process.ended, DEADLINE_S)
    first = cluster_id(spec)
    start()
    assert spec_of_running(tmp_path) == spec
    assert cluster_id(spec) == first
    assert read_all(spec.bootstrap, ingress, 2) == [b"before", largest]
    ends = {end.name: end.end_offsets for end in topic_ends(admin_client(spec.bootstrap, {}), kafka.prefix)}
    assert ends[ingress] == [2, 0]


def spec_of_running(data: Path) -> BrokerSpec:
    """The spec of the broker that runs in `data`, from the ports it has remembered."""
    ports = Ports(data).remembered
    return spec_of_ports(data, ports["broker"], ports["controller"])


def spec_of_ports(data: Path, port: int, controller_port: int) -> BrokerSpec:
    return BrokerSpec(data / "broker", "127.0.0.1", port, controller_port, "512m", PAYLOAD_BYTES)


def test_it_moves_when_its_picked_ports_were_taken(start: Start, tmp_path: Path) -> None:
    stop_all([start()], DEADLINE_S)
    before = spec_of_running(tmp_path)
    with socket.socket() as one, socket.socket() as other:
        for taker, port in ((one, before.port), (other, before.controller_port)):
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taker.bind(("127.0.0.1", port))
            taker.listen()
        start()
        after = spec_of_running(tmp_path)
    assert not {after.port, after.controller_port} & {before.port, before.controller_port}
    assert answers(after)


def test_a_configured_port_that_is_taken_is_one_clear_sentence(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        settings = process_settings({"WAYSTATION_STACK__BROKER_PORT": str(port)})
        with pytest.raises(PortTaken, match=rf"port {port} \(stack\.broker_port\) .* is used by another program"):
            choose_addresses(settings, tmp_path, free_ports=False)


def test_another_partition_count_is_refused(broker, unique_prefix: str) -> None:
    topics = broker.topics(unique_prefix, ingress_partitions=2)
    with pytest.raises(TopicsError) as raised:
        broker.topics(unique_prefix, ingress_partitions=3)
    assert "has 2 partitions, but the configuration says 3" in str(raised.value)
    assert unique_prefix in str(raised.value)
    assert topics.ingress.startswith(unique_prefix)
