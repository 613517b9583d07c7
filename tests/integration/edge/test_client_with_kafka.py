"""Kafka as a bearer, on real brokers: over kills, with TLS and SASL (G11, G13, R8)."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from edge.client.message import Message
from edge.reconnect import FullJitter
from harness.keys import Authority
from harness.processes import Broker
from jobs.stack.broker import BrokerSpec
from jobs.stack.ports import Ports
from jobs.stack.topics import admin_client, create_topics
from schemas.envelope import Meta
from schemas.identity import message_id_of, partition_of
from schemas.topics import DAY_MS, Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.edge.ingress_records import PARTITIONS, PATIENCE_S, records
from tests.integration.edge.publisher_process import killed_after
from waystation import Client, ConnectRefused, KafkaOptions, Limits, NotReachable, NotSupported, PublishRefused

pytestmark = [
    pytest.mark.filterwarnings(  # kafka-python leaves the socket of a failed handshake to the garbage collector
        "ignore:Exception ignored in. <(socket|ssl).:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl).:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def sockets_collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Those that kafka-python's log records hold too, before a later test is blamed for them."""
    yield
    caplog.clear()
    caplog.handler.reset()
    gc.collect()


def publisher(bootstrap: str, store: Path | None, failed: list[Message] | None = None, **kafka: Any) -> Client:
    return Client(
        client_id="billing",
        connect_points=[f"kafka://{bootstrap}"],
        kafka=KafkaOptions(**kafka),
        store=store,
        backoff=FullJitter(0.01, 0.1),
        limits=Limits(message_bytes=4 << 20),
        on_failed=lambda message, _: (failed if failed is not None else []).append(message),
    )


def test_publishes_as_a_gateway_does(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """In order, in the sender's partition, with an id that follows from the store; what Kafka cannot do is said."""
    topics = broker.topics(unique_prefix)
    number = 500
    failed: list[Message] = []

    async def scenario() -> None:
        async with (
            publisher(f"127.0.0.1:1,{broker.bootstrap}", tmp_path / "o", failed, topic=topics.ingress) as client,
            asyncio.timeout(PATIENCE_S),
        ):
            first = await client.publish("bills/0", b"\xff", qos=2, lifetime_s=60, content_type="text/plain")
            await client.connected()
            await first.acknowledged
            sent = await asyncio.gather(*(client.publish(f"bills/{n}", b"%d" % n) for n in range(1, number)))
            with pytest.raises(PublishRefused, match="PACKET_TOO_LARGE"):
                await (await client.publish("bills/huge", bytes(3 << 20))).acknowledged
            await asyncio.gather(*(_acknowledged(one) for one in sent))
            for wrong in (client.subscribe("x"), client.unsubscribe("x"), client.request("x", timeout_s=5)):
                with pytest.raises(NotSupported, match="kafka"):
                    await wrong
            incarnation = client._outbox._incarnation
            found = records(broker.bootstrap, topics.ingress)
            assert [one.key for one in found] == [f"bills/{n}" for n in range(number)]
            assert {one.partition for one in found} == {partition_of("billing", PARTITIONS)}
            assert [one.message_id for one in found] == [
                message_id_of("billing", incarnation, n + 1) for n in range(number)
            ]
            meta = Meta.decode(found[0].headers[2][1])
            assert (meta.qos, meta.flags, meta.seq, meta.session) == (2, "", None, None)
            assert meta.expires is not None
            assert 50_000 < meta.expires - meta.accepted / 1000 <= 60_000

    asyncio.run(scenario())
    assert [one.topic for one in failed] == ["bills/huge"]


def test_killed_again_and_again(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """Nothing accepted is missing, in order, and each copy has the id of the first."""
    topics, choice = broker.topics(unique_prefix), draw.generator("kills of the publisher to Kafka")

    async def scenario() -> None:
        accepted: list[int] = []
        arguments = f"kafka://{broker.bootstrap}", "5.0", str(tmp_path / "outbox"), topics.ingress
        for _ in range(6 if draw.SOAK else 2):
            accepted += await killed_after(choice.uniform(0.2, 0.6), *arguments)
        options = KafkaOptions(topic=topics.ingress)
        async with Client(
            client_id="publisher", connect_points=[arguments[0]], kafka=options, store=arguments[2]
        ) as last:
            await last.drained()
            everything = range(1, last._outbox.last_sequence + 1)
        found = records(broker.bootstrap, topics.ingress)
        assert accepted
        assert {int(one.value) for one in found} == set(everything) >= set(accepted)
        assert len({one.message_id for one in found}) == len(everything), "a copy has another id"
        assert list(dict.fromkeys(int(one.value) for one in found)) == list(everything), "order of the first copies"
        assert Counter(one.message_id for one in found).most_common(1)[0][1] <= 7, "one for each process at most"

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_tls_and_sasl(tmp_path: Path, java_home: Path, jars: Path) -> None:
    """Each mechanism over TLS with certificates of both sides; what is refused says why."""
    authority = Authority(tmp_path)
    server, own = authority.sign("broker"), authority.sign("billing")
    other = Authority(tmp_path, "other")
    keystore = tmp_path / "keystore.pem"
    keystore.write_bytes(server.key.read_bytes() + server.certificate.read_bytes())
    port = Ports(tmp_path).choose("secure", "127.0.0.1", 0, "")
    broker = Broker(
        tmp_path, java_home, heap="256m", properties=lambda spec: _secure(spec, port, keystore, authority.file)
    ).start()
    tls = {"tls": True, "ca_file": str(authority.file)}
    tls |= {"certificate_file": str(own.certificate), "key_file": str(own.key)}
    alice = {"username": "alice", "password": "open sesame"}

    async def attempt(**options: Any) -> None:
        async with (
            publisher(f"localhost:{port}", None, topic="t.ingress", **options) as client,
            asyncio.timeout(PATIENCE_S),
        ):
            while not client.is_connected:
                try:
                    await client.connected()
                except NotReachable as error:
                    reasons = {attempt.reason.rpartition(": ")[2] for attempt in error.attempts}
                    if reasons != {"socket disconnected"}:  # kafka-python does not always read the broker's answer
                        raise
            await (await client.publish("x", str(options["sasl_mechanism"]))).acknowledged

    async def scenario() -> None:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            await attempt(**tls, sasl_mechanism=mechanism, **alice)
        with pytest.raises(ConnectRefused, match="credentials"):
            await attempt(**tls, sasl_mechanism="PLAIN", username="alice", password="wrong")
        with pytest.raises(NotReachable, match="certificate"):
            await attempt(**(tls | {"ca_file": str(other.file)}), sasl_mechanism="PLAIN", **alice)

    try:
        declared = Topics("t.").declared(PARTITIONS, 4, DAY_MS)
        create_topics(admin_client(broker.bootstrap, {}), [one for one in declared if one.name == "t.ingress"])
        _add_scram(broker.bootstrap)
        asyncio.run(scenario())
        found = records(broker.bootstrap, "t.ingress")
    finally:
        broker.stop()
    assert [one.value for one in found] == [b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512"]


def _secure(spec: BrokerSpec, port: int, keystore: Path, authorities: Path) -> str:
    """A listener with TLS and SASL beside the plain one."""
    listeners = f"BROKER://{spec.bootstrap},SECURE://localhost:{port}"
    prefix, jaas = "listener.name.secure", "org.apache.kafka.common.security"
    scram = f"{jaas}.scram.ScramLoginModule required;"
    lines = {
        "listeners": f"{listeners},CONTROLLER://{spec.host}:{spec.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": str(keystore),
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": str(authorities),
        f"{prefix}.ssl.client.auth": "required",
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}.plain.sasl.jaas.config": f'{jaas}.plain.PlainLoginModule required user_alice="open sesame";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
        f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _add_scram(bootstrap: str) -> None:
    admin: AdminClient = admin_client(bootstrap, {})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"open sesame")
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(PATIENCE_S)


async def _acknowledged(message: Message) -> None:
    await message.acknowledged
