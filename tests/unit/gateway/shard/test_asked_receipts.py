"""Receipts that senders ask for, as the gateway takes them (Q13)."""

import base64
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from mqtt.codes import PacketType, ReasonCode
from mqtt.packets import Publish
from mqtt.properties import decode_properties
from mqtt.wire import Reader
from schemas.events import ProgressEvent
from schemas.receipts import KINDS, MOST_CORRELATION_BYTES, ReceiptRequest
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

MESSAGE = "0192f6b0-0000-7000-8000-000000000001"


def asking(kind: str = "completed", correlation: bytes = b"id 7") -> dict[str, Any]:
    return {"user_property": [("x", "y"), ("receipt", kind)], "correlation_data": correlation}


def asked(harness: HomeHarness) -> list[ProgressEvent]:
    return [event for event in harness.events() if event.kind == "asked"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_the_ledger_learns_who_asks_for_what(tmp_path: Path, kind: str, qos: int, retain: bool) -> None:
    """The event has the id of the message, and the receipt's properties as they are to be sent."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("a", b"1", qos, retain=retain, properties=asking(kind))
        await turn()
        [event] = asked(harness)
        assert set(harness.published()) == {event.id}
        assert event.is_awaited
        assert isinstance(event.receipt, ReceiptRequest)
        assert (event.receipt.kind, event.receipt.to) == (kind, "sender")
        section = base64.b64decode(event.receipt.properties)
        assert decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) == {
            "payload_format_indicator": 1,
            "content_type": "application/json",
            "user_property": [("waystation-receipt", kind)],
            "correlation_data": b"id 7",
        }
        assert sender.acknowledged == ({b"1"} if qos else set())

    run(scenario())


@pytest.mark.parametrize("properties", [None, {}, {"user_property": [("receipt", "shop 3"), ("Receipt", "failed")]}])
def test_others_ask_for_nothing(tmp_path: Path, properties: dict[str, Any] | None) -> None:
    """A property of the same name with another value is the application's own."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("a", b"1", 1, properties=properties)
        await turn()
        assert sender.acknowledged == {b"1"}
        assert asked(harness) == []

    run(scenario())


def test_homes_mark_what_becomes_of_such_a_message_and_of_no_other(tmp_path: Path) -> None:
    """Nor what becomes of its retained copy later."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a/#")
        await turn(LEAD_S + 5)
        sender.publish("a/1", b"1", 1, retain=True, properties=asking())
        sender.publish("a/2", b"2", 1)
        await turn(1)
        late = await harness.client("late")
        await late.subscribe("a/#")
        await turn(1)
        [event] = asked(harness)
        marked = [e for e in harness.events() if e.is_awaited is True and e.kind != "asked"]
        assert [(e.id, [d.client for d in e.deliveries]) for e in marked if e.deliveries] == [(event.id, ["receiver"])]
        assert harness.outcomes("late"), "it has got the retained copy"

    run(scenario())


def test_a_message_is_acknowledged_once_its_receipt_is_sure(tmp_path: Path) -> None:
    """Q1: as all that an acknowledgement promises. At QoS 2 the message follows: whoever finds it asks no more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        harness.bus.held_stores = {harness.topics.progress}
        sender.publish("a", b"1", 1, properties=asking())
        sender.publish("a", b"2", 2, properties=asking())
        sender.publish("a", b"3", 2, retain=True, properties=asking())
        sender.publish("a", b"4", 1)
        await turn()
        assert not sender.acknowledged
        assert ingress(harness) == [b"1"]
        assert not harness.broker.partitions[harness.topics.retained, 0]
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn()
        assert sender.acknowledged == {b"1", b"2", b"3", b"4"}
        assert ingress(harness) == [b"1", b"2", b"3", b"4"], "R8: in their order"

    run(scenario())


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_receipt_that_kafka_does_not_take_refuses_the_message(tmp_path: Path, qos: int, retain: bool) -> None:
    """What follows goes on."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        harness.bus.refused[harness.topics.progress] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        sender.publish("a", b"1", qos, retain=retain, properties=asking())
        sender.publish("a", b"2", 1)
        await turn()
        assert sender.refused == [ReasonCode.UNSPECIFIED_ERROR]
        assert sender.acknowledged == {b"2"}
        assert qos == 1 or ingress(harness) == [b"2"]
        assert sender.attached.publisher.in_flight == 0

    run(scenario())


def test_correlation_data_that_is_too_long_to_be_kept_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("a", b"1", 1, properties=asking(correlation=bytes(MOST_CORRELATION_BYTES)))
        sender.publish("a", b"2", 1, properties=asking(correlation=bytes(MOST_CORRELATION_BYTES + 1)))
        sender.publish("a", b"3", 1, properties={"correlation_data": bytes(MOST_CORRELATION_BYTES + 1)})
        await turn()
        assert sender.refused == [ReasonCode.QUOTA_EXCEEDED]
        assert sender.acknowledged == {b"1", b"3"}
        assert harness.node.counts["refused_receipt_too_large"] == 1

    run(scenario())


def test_a_message_that_is_to_be_read_says_which_it_is(tmp_path: Path) -> None:
    """Its sender cannot say another: the last property of that name is the platform's."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        forged = {"user_property": [("receipt", "read"), ("message-id", "another")]}
        sender.publish("a", b"1", 1, properties=forged)
        await turn()
        [event] = asked(harness)
        [record] = [r for p in range(PARTITIONS) for r in harness.broker.partitions[harness.topics.ingress, p]]
        section = (record.headers() or [])[3][1]
        properties = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
        assert properties["user_property"] == [*forged["user_property"], ("message-id", event.id)]

    run(scenario())


@pytest.mark.parametrize("qos", [0, 1])
def test_a_recipient_says_that_it_has_read_a_message(tmp_path: Path, qos: int) -> None:
    """Acknowledged once Kafka knows; it is no message."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        reader = await harness.client("reader")
        harness.bus.held_acks = {harness.topics.progress}
        reader.publish(f"$read/{MESSAGE}", b"", qos)
        await turn()
        assert not reader.acknowledged
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn()
        assert len(reader.acknowledged) == qos
        [event] = harness.events()
        assert (event.kind, event.id, event.read_by, event.is_awaited) == ("read", MESSAGE, "reader", True)
        assert not harness.published()

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "qos"), [("$read/", 1), ("$read/1", 1), (f"$read/{MESSAGE}/x", 1), (f"$read/{MESSAGE}", 2)]
)
def test_what_names_no_message_is_refused(tmp_path: Path, topic: str, qos: int) -> None:
    """At QoS 2 too: there is nothing that could come twice."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        reader = await harness.client("reader")
        reader.publish(topic, b"", qos)
        await turn()
        assert reader.refused == [ReasonCode.TOPIC_NAME_INVALID]
        assert not harness.events()
        assert not harness.published()
        reader.publish("a", b"1", 2)
        await turn()
        assert reader.acknowledged == {b"1"}

    run(scenario())


@pytest.mark.parametrize("mark", [("waystation-receipt", "failed"), ("conversation-receiver", "gone")])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_nobody_can_forge_a_message_of_the_platform(tmp_path: Path, qos: int, mark: tuple[str, str]) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("@victim", b"{}", qos, properties={"user_property": [mark]})
        await turn()
        assert sender.refused == ([ReasonCode.NOT_AUTHORIZED] if qos else [])
        assert not harness.published()

    run(scenario())


def test_a_keyed_message_goes_behind_what_asks_for_its_receipt(tmp_path: Path) -> None:
    """As at QoS 2: a program that posts it again is told that it is there, and its receipt would be lost."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        harness.bus.held_stores = {harness.topics.progress}
        sender.attached.publisher.publish(Publish("a", b"1", 1, False, False, 9, asking()), message_id="0-1")
        await turn()
        assert ingress(harness) == []
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn()
        assert ingress(harness) == [b"1"]

    run(scenario())


def ingress(harness: HomeHarness) -> list[bytes]:
    """The payloads of the messages there, in their order."""
    found = [harness.broker.partitions[harness.topics.ingress, p] for p in range(PARTITIONS)]
    return [record.value() or b"" for records in found for record in records]
