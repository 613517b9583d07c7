"""Policy as clients meet it: each refusal by its answer, counted by its reason, on both versions (Q12)."""

from pathlib import Path
from typing import Any

import pytest

from gateway.host.authenticator import Authenticator, Credentials, OpenAuthenticator
from gateway.host.host_server import HostServer
from gateway.policy.policy_authenticator import PolicyAuthenticator
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from schemas.envelope import Meta
from tests.unit.gateway.host.test_host_connection import Wire
from tests.unit.gateway.policy.policies import policy
from tests.unit.gateway.shard.home_harness import PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


class OldWire(Wire):
    """A client that speaks MQTT 3.1.1."""

    def __init__(self, server: HostServer) -> None:
        super().__init__(server)
        self._decoder = Decoder(1 << 20, 4)

    def send(self, *packets: Packet) -> "OldWire":
        self.connection.data_received(b"".join(encode(packet, 4) for packet in packets))
        return self


class Place:
    """A gateway with a policy."""

    def __init__(self, harness: HomeHarness, authenticator: Authenticator | None = None, **changes: Any) -> None:
        self.harness = harness
        gateway = harness.settings().gateway
        counts = harness.node.counts
        self.authenticator = PolicyAuthenticator(
            authenticator or OpenAuthenticator(), policy(**changes), counts, harness.loop_time
        )
        self.server = HostServer(
            gateway,
            harness.home,
            harness.clock,
            lambda: harness.bus.in_flight,
            harness.fatal.append,
            self.authenticator,
        )

    async def connect(self, client: str, version: int = 5, will: Will | None = None) -> Wire:
        wire = Wire(self.server) if version == 5 else OldWire(self.server)
        wire.send(Connect(client, version, True, will=will))
        await turn()
        return wire

    @property
    def counts(self) -> dict[str, int]:
        names = ("refused_", "policy_")
        return {name: n for name, n in self.harness.node.counts.items() if name.startswith(names)}

    def stored(self) -> list[tuple[bytes, str]]:
        """Payload and flags of what is on `ingress`."""
        found = [self.harness.broker.partitions[self.harness.topics.ingress, p] for p in range(PARTITIONS)]
        return [
            (record.value() or b"", Meta.decode((record.headers() or [])[2][1]).flags)
            for records in found
            for record in records
        ]


def publish(payload: bytes, qos: int, packet_id: int = 1, topic: str = "a", **properties: Any) -> Publish:
    return Publish(topic, payload, qos, packet_id=packet_id if qos else 0, properties=properties or None)


@pytest.mark.parametrize(
    ("changes", "packet", "reason", "event"),
    [
        ({"message_bytes": 3}, publish(b"long", 1), 0x97, "policy_message_bytes"),
        ({"message_bytes": 3}, publish(b"long", 2), 0x97, "policy_message_bytes"),
        ({"message_bytes": 3}, publish(b"long", 0), None, "policy_message_bytes"),
        ({"topic_bytes": [{"filter": "a/#", "bytes": 3}]}, publish(b"long", 1), 0x97, "policy_topic_bytes"),
        ({"blocked_publish": ["+"]}, publish(b"", 1), 0x90, "policy_blocked_topic"),
        ({"blocked_publish": ["+"]}, publish(b"", 0), None, "policy_blocked_topic"),
        ({"attachments": {"types": ["*/*"]}}, publish(b"x", 2, content_type="a/b"), 0x97, "policy_attachment_bytes"),
    ],
)
def test_a_refused_publish_is_answered_counted_and_not_stored(
    tmp_path: Path, changes: dict[str, Any], packet: Publish, reason: int | None, event: str
) -> None:
    """Q12: and the next one that is allowed goes on, with the same packet id."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), **changes)
        wire = await place.connect("c")
        wire.send(packet)
        await turn()
        answer = {0: None, 1: Puback, 2: Pubrec}[packet.qos]
        assert wire.received[1:] == ([] if answer is None else [answer(packet.packet_id, ReasonCode(reason or 0))])
        assert place.counts == {event: 1, "refused_by_rule": 1}
        assert place.stored() == []
        wire.send(publish(b"ok", 1, topic="b/c"))
        await turn()
        assert wire.received[-1] == Puback(1)
        assert place.stored() == [(b"ok", "")]
        assert not wire.is_closed
        assert not place.harness.fatal
        await place.server.stop()

    run(scenario())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_refused_publish_of_an_older_client_ends_its_connection_if_it_waits_for_an_answer(
    tmp_path: Path, qos: int
) -> None:
    """Q12, [MQTT-3.3.5-2] of 3.1.1: there is no answer that says no, and at QoS 0 none at all."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), message_bytes=3)
        wire = await place.connect("c", version=4)
        wire.send(publish(b"long", qos))
        await turn()
        assert wire.is_closed == (qos > 0)
        assert len(wire.received) == 1, "CONNACK"
        assert place.stored() == []
        assert place.counts["policy_message_bytes"] == 1
        await place.server.stop()

    run(scenario())


def test_a_flag_travels_in_the_envelope(tmp_path: Path) -> None:
    """Q12: with the message, its retained copy, and a will; recipients get it as it is."""

    async def scenario() -> None:
        attachments = {"types": ["image/*"], "bytes": 3, "above": "flag"}
        place = Place(await HomeHarness(tmp_path).start(), attachments=attachments)
        sender = await place.connect("s", will=Will("w", b"last", 1, False, {"content_type": "image/png"}))
        receiver = await place.connect("r")
        receiver.send(Subscribe(1, [Subscription("#", 1)]))
        await turn()
        sender.send(publish(b"long", 1, content_type="image/png"), publish(b"x", 1, 2, content_type="image/png"))
        sender.send(Publish("k", b"kept", 1, True, packet_id=3, properties={"content_type": "image/gif"}))
        await turn()
        sender.lose()
        await turn(1)
        assert sorted(place.stored()) == [(b"kept", "ar"), (b"last", "wa"), (b"long", "a"), (b"x", "")]
        assert place.counts == {"policy_attachment_flagged": 3}
        assert [packet.payload for packet in receiver.received if isinstance(packet, Publish)] == [
            b"long",
            b"x",
            b"kept",
            b"last",
        ]
        await place.server.stop()

    run(scenario())


@pytest.mark.parametrize("version", [4, 5])
def test_a_blocked_filter_is_answered_with_0x80(tmp_path: Path, version: int) -> None:
    """Q12: as the interoperability suite of the Eclipse Paho project has it; the other filters are granted."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), blocked_subscribe=["test/nosubscribe"])
        wire = await place.connect("c", version)
        wire.send(Subscribe(1, [Subscription("test/nosubscribe", 2), Subscription("test/#", 2)]))
        await turn()
        assert wire.received[-1] == Suback(1, [ReasonCode.UNSPECIFIED_ERROR, ReasonCode.GRANTED_QOS_2])
        assert place.counts == {"policy_blocked_filter": 1}
        await place.server.stop()

    run(scenario())


RATE = {"messages_per_s": 10.0, "messages_burst": 5}


@pytest.mark.parametrize("limit", [RATE, {"bytes_per_s": 10.0, "bytes_burst": 5}], ids=["messages", "bytes"])
def test_above_the_rate_a_publish_is_refused(tmp_path: Path, limit: dict[str, Any]) -> None:
    """Q12, R9: 0x97, QoS 0 is dropped and counted; later there is room again, and others have theirs."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), message_rate=limit)
        wire, other = await place.connect("c"), await place.connect("other")
        wire.send(*(publish(b"%d" % (n % 10), n % 2, n) for n in range(1, 11)))
        other.send(publish(b"o", 1))
        await turn()
        codes = [packet.reason_code for packet in wire.received[1:] if isinstance(packet, Puback)]
        assert codes == [ReasonCode.SUCCESS] * 3 + [ReasonCode.QUOTA_EXCEEDED] * 2
        assert [payload for payload, _ in place.stored()].count(b"o") == 1
        assert len(place.stored()) == 6
        assert place.counts["policy_message_rate"] == 5
        await turn(0.2)
        wire.send(*(publish(b"x", 1, n) for n in range(1, 5)))
        await turn()
        codes = [packet.reason_code for packet in wire.received[-4:] if isinstance(packet, Puback)]
        assert codes.count(ReasonCode.SUCCESS) == 2
        await place.server.stop()

    run(scenario())


@pytest.mark.parametrize("version", [4, 5])
def test_above_the_rate_the_connection_ends(tmp_path: Path, version: int) -> None:
    """Q12: 0x96; whoever comes back at once has no more tokens than before, its will included."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), message_rate={**RATE, "above": "disconnect"})
        wire = await place.connect("c", version)
        wire.send(*(publish(b"x", n % 2, n) for n in range(1, 11)))
        await turn()
        assert wire.is_closed
        assert version == 4 or wire.received[-1] == Disconnect(ReasonCode.MESSAGE_RATE_TOO_HIGH)
        assert place.server.counts["closed_message_rate_too_high"] == 1
        assert len(place.stored()) == 5
        again = await place.connect("c", version, will=Will("w", b""))
        refusal = ReasonCode.QUOTA_EXCEEDED if version == 5 else ConnectReturnCode.SERVER_UNAVAILABLE
        assert [packet.reason_code for packet in again.received if isinstance(packet, Connack)] == [refusal]
        await turn(0.3)
        again = await place.connect("c", version)
        again.send(publish(b"x", 1, 1))
        await turn()
        assert again.received[-1] == Puback(1)
        await place.server.stop()

    run(scenario())


def test_above_the_rate_reading_pauses_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """Q12, R9: nothing is lost, the rate is kept, and the client that waits is not taken for silent."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), message_rate={**RATE, "above": "pause"})
        wire, other = await place.connect("c"), await place.connect("other")
        began = place.harness.loop_time()
        wire.send(*(publish(b"%d" % n, 1, n) for n in range(1, 26)))
        await turn()
        assert wire.is_paused
        assert not other.is_paused
        assert len(place.stored()) == 25, "what was read goes on"
        assert [type(packet) for packet in wire.received[1:]] == [Puback] * 25
        while wire.is_paused:
            await turn(0.01)
        assert 2.0 <= place.harness.loop_time() - began <= 2.1
        wire.send(Pingreq(), publish(b"x", 0))
        assert wire.is_paused
        assert place.counts == {"policy_message_rate_paused": 2}
        wire.lose()
        await turn(5)
        assert place.server.connections == {other.connection}
        assert not place.harness.fatal
        await place.server.stop()

    run(scenario())


@pytest.mark.parametrize("version", [4, 5])
def test_connections_come_no_faster_than_configured(tmp_path: Path, version: int) -> None:
    """Q12: 0x9F, or 3.1.1's server unavailable; there is room again later."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), connection_rate={"per_s": 2.0, "burst": 3})
        codes = []
        for n in range(5):
            wire = await place.connect(f"c{n}", version)
            codes += [packet.reason_code for packet in wire.received if isinstance(packet, Connack)]
        refusal = ReasonCode.CONNECTION_RATE_EXCEEDED if version == 5 else ConnectReturnCode.SERVER_UNAVAILABLE
        assert codes == [0, 0, 0, refusal, refusal]
        assert place.counts == {"policy_connection_rate": 2}
        await turn(0.5)
        assert not (await place.connect("later", version)).is_closed
        await place.server.stop()

    run(scenario())


def test_a_client_that_takes_itself_over_again_and_again_is_stopped(tmp_path: Path) -> None:
    """Q12: two programs with one client id; others come in."""

    async def scenario() -> None:
        place = Place(await HomeHarness(tmp_path).start(), connection_rate={"client_per_s": 1.0, "client_burst": 2})
        wires = [await place.connect("same") for _ in range(4)]
        assert [wire.is_closed for wire in wires] == [True, False, True, True]
        assert wires[0].received[-1] == Disconnect(ReasonCode.SESSION_TAKEN_OVER)
        assert place.counts == {"policy_client_connection_rate": 2}
        assert not (await place.connect("other")).is_closed
        await place.server.stop()

    run(scenario())


def test_requests_over_http_are_no_connections(tmp_path: Path) -> None:
    """Q12: they ask the authenticator one by one; above the rate they are refused, as nothing can be paused."""

    async def scenario() -> None:
        rates = {
            "connection_rate": {"client_per_s": 1.0, "client_burst": 1},
            "message_rate": {**RATE, "above": "pause"},
        }
        place = Place(await HomeHarness(tmp_path).start(), blocked_subscribe=["secret/#"], **rates)
        codes = []
        for _ in range(8):
            rules = await place.authenticator.admit(Credentials("http:c", None, None, None, "peer", "http"))
            codes.append(rules.publish(publish(b"x", 1)).reason)
        assert codes == [ReasonCode.SUCCESS] * 5 + [ReasonCode.QUOTA_EXCEEDED] * 3
        assert rules.subscribe("secret/a") is ReasonCode.NOT_AUTHORIZED
        assert place.counts == {"policy_message_rate": 3, "policy_blocked_filter": 1}
        await place.server.stop()

    run(scenario())
