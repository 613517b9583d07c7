"""A device that is away, with a gateway process on a real broker: what waits is given to a carrier, the gateway is
killed, and the device's receipt still ends it, once and for good (M5, M12, M14, M15, M21)."""

import base64
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bundles.bundle import Kind, decode, encode
from bundles.receipt import Role
from harness.processes import Gateway
from jobs.stack.process import wait_until
from schemas.envelope import Instruction
from schemas.identity import shard_of
from schemas.topics import NO_GROUP, Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S, Client
from tests.unit.bundles.files import mesh_environment, mesh_files
from tests.unit.bundles.keys import certificate, receipt
from tests.unit.gateway.mesh.mesh_gateway import b64, made

pytestmark = draw.over_processes

DEVICE = "van-7"
ENVELOPES = [made(n, b"%d" % n, f"@{DEVICE}", kind=Kind.ENVELOPE, sealed_to=DEVICE) for n in (1, 2, 3)]


def ask(gateway: Gateway, path: str, body: Any) -> Any:
    headers = {"X-Client-Id": "carrier", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{gateway.http_port}{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=PATIENCE_S
    ) as answer:
        return json.load(answer)


def route(broker: LocalBroker, topics: Topics, count: int) -> None:
    """What a router does with messages to the device's inbox."""
    common = {"bootstrap.servers": broker.bootstrap}
    consumer = Consumer({**common, "group.id": NO_GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics.ingress, partition, 0) for partition in range(2)])
    records = consumer.consume(count, PATIENCE_S)
    consumer.close()
    assert len(records) == count
    producer, shard = Producer(common), shard_of(DEVICE, 4)
    for record in records:
        of = Instruction(record.partition(), record.offset(), 0, 1, record.timestamp()[1])
        headers = [*(record.headers() or []), ("instr", of.encode()), ("router", b"active")]
        producer.produce(topics.egress, record.value(), record.key(), shard, headers=headers)
    producer.flush(PATIENCE_S)


def test_a_receipt_ends_what_a_killed_gateway_has_given_to_a_carrier(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """And the rest reaches the device itself, with nothing twice. The certificates of originators that go with the
    bundles, and that of the device, are known to the next gateway."""
    topics = broker.topics(unique_prefix)
    files = mesh_files(tmp_path / "mesh", time.time()) | {"carried": ["van-*"]}
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **mesh_environment(files))
    gateway.start()
    try:
        device = Client(DEVICE).connect(gateway.port)
        device.leave()
        ours, vans = (b64(certificate(name, now_s=time.time()).der) for name in ("agent", DEVICE))
        ask(gateway, "/v1/mesh/certificates", {"certificates": [vans]})
        body = {"bundles": [b64(encode(one)) for one in ENVELOPES], "certificates": [ours]}
        assert [one["outcome"] for one in ask(gateway, "/v1/bundles", body)["results"]] == ["taken"] * 3
        route(broker, topics, 3)

        def waiting() -> list[str]:
            answer = ask(gateway, "/v1/bundles/waiting", {"devices": {DEVICE: 0}})
            assert answer["certificates"] == ([ours] if answer["bundles"] else [])
            return [decode(base64.b64decode(one)).message_id for one in answer["bundles"]]

        ids = [one.message_id for one in ENVELOPES]
        assert wait_until(lambda: waiting() == ids, PATIENCE_S)
        gateway.kill()
        gateway.start()
        assert waiting() == ids, "nothing is removed by giving it"
        signed = [receipt(one, DEVICE, Role.RECIPIENT) for one in ids[:2]]
        settled = ask(gateway, "/v1/receipts", {"receipts": [b64(one.encoded) for one in signed]})
        assert settled == {"results": [{"outcome": "settled", "reason": ""}] * 2}
        assert waiting() == ids[2:]
        device.connect(gateway.port)
        assert wait_until(lambda: len(device.got) > 0, PATIENCE_S)
        again = ask(gateway, "/v1/receipts", {"receipts": [b64(one.encoded) for one in signed]})
        assert [one["outcome"] for one in again["results"]] == ["unknown"] * 2
        device.leave()
        assert [decode(one).message_id for one in device.got] == ids[2:]
    finally:
        gateway.stop()
