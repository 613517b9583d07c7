"""Records of the client library are those of a gateway (G11, R8)."""

import pytest

from edge.client.kafka_record import check_record, ingress_record
from edge.client.store import StoredMessage
from gateway.record import Record
from mqtt.errors import LocalProtocolError
from mqtt.packets import Properties, Publish
from schemas.envelope import Meta
from schemas.identity import message_id_of, partition_of
from tests.unit.edge.client.client_harness import client, complete, url_of
from tests.unit.gateway.host.socket_gateway import SocketGateway
from tests.waiting import wait_for

PARTITIONS = 2
LIFETIME_S = 60.0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_same_message_is_the_same_record(gateway: SocketGateway, qos: int) -> None:
    """What a gateway writes for an MQTT client, but for the id, and the window of a QoS 2 message, which has none."""
    topic = f"records/é/{qos}"
    properties: Properties = {
        "message_expiry_interval": int(LIFETIME_S),
        "content_type": "text/plain",
        "response_topic": "@van-7",
        "correlation_data": b"\xff",
        "user_property": [("a", "b"), ("a", "ü")],
    }

    async def run() -> None:
        async with client(url_of(gateway), f"records-{qos}") as van:
            await van.publish(
                topic,
                b"payload",
                qos=qos,
                lifetime_s=LIFETIME_S,
                content_type="text/plain",
                response_topic="@van-7",
                correlation=b"\xff",
                user_properties=[("a", "b"), ("a", "ü")],
            )
            await van.drained()

    complete(run())
    harness = gateway.harness

    def written() -> list[Record]:
        found = (harness.broker.partitions[harness.topics.ingress, partition] for partition in range(PARTITIONS))
        return [record for records in found for record in records if record.key() == topic.encode()]

    wait_for(lambda: bool(written()), "the gateway's record")  # at QoS 0 the client does not hear of it
    [theirs] = written()
    headers = theirs.headers() or []
    meta = Meta.decode(headers[2][1])
    message = StoredMessage(7, topic, b"payload", qos, False, properties, 0.0, 0, incarnation=5)
    ours = ingress_record(message, f"records-{qos}", PARTITIONS, meta.accepted / 1e6, LIFETIME_S)
    assert (ours.partition, ours.key, ours.value) == (theirs.partition(), theirs.key(), theirs.value())
    assert [name for name, _ in ours.headers] == [name for name, _ in headers]
    assert dict(ours.headers)["id"] == message_id_of(f"records-{qos}", 5, 7).encode()
    assert [dict(ours.headers)[name] for name in ("src", "props")] == [dict(headers)[name] for name in ("src", "props")]
    assert abs((Meta.decode(ours.headers[2][1]).expires or 0) - (meta.expires or 0)) <= 1
    assert Meta.decode(ours.headers[2][1])._replace(expires=None) == meta._replace(expires=None, seq=None, session=None)
    assert ours.partition == partition_of(f"records-{qos}", PARTITIONS)


@pytest.mark.parametrize(
    "wrong",
    [Publish("t", b"", retain=True), Publish("$SYS/x", b""), Publish("$presence/x", b""), Publish("feeds/x/y@0", b"")],
)
def test_what_only_a_gateway_may_write(wrong: Publish) -> None:
    with pytest.raises(LocalProtocolError):
        check_record(wrong)
