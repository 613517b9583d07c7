"""What MQTT clients of the agent see: the listener in memory, over a real file (M1, M2, M16; MQTT 5.0 and 3.1.1)."""

from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.unit.edge.agent.agent_harness import Clock
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, broker, complete

versions = pytest.mark.parametrize("version", [4, 5])
REFUSED = ReasonCode.QUOTA_EXCEEDED


@versions
def test_each_qos_goes_on_and_to_subscribers_here(tmp_path: Path, version: int) -> None:
    """M16: a publish is answered once it is in the spool and in the subscriber's queue, both on disk."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one, other = await agent.client("one", version), await agent.client("two", version)
            await other.subscribe("far/+")
            for qos in (0, 1, 2):
                one.publish("far/x", b"%d" % qos, qos)
                if qos == 1:
                    assert await one.next(Puback) == Puback(1)
                elif qos == 2:
                    assert await one.next(Pubrec) == Pubrec(1)
                    one.send(Pubrel(1))
                    assert await one.next(Pubcomp) == Pubcomp(1)
                got = await other.next(Publish)
                assert (got.payload, got.qos, got.dup) == (b"%d" % qos, qos, False)
                if qos == 1:
                    other.send(Puback(got.packet_id))
                elif qos == 2:
                    other.send(Pubrec(got.packet_id))
                    assert await other.next(Pubrel) == Pubrel(got.packet_id)
                    other.send(Pubcomp(got.packet_id))
            assert [(row.target, row.message.payload, row.message.qos) for row in await agent.spool()] == [
                ("@far", b"0", 0),
                ("@far", b"1", 1),
                ("@far", b"2", 2),
            ]
            status = await agent.changes.make(lambda store: store.status())
            assert (status["spool"], status["waiting_for_clients"]) == (3, 0)

    complete(run())


def test_a_publish_is_taken_once_though_the_agent_is_killed(tmp_path: Path) -> None:
    """QoS 2: the packet id is in the transaction that takes the message (4.3.3)."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            one.publish("x", b"once", 2, 7)
            await one.next(Pubrec)
        async with broker(tmp_path) as agent:
            one = await agent.client("one", present=True)
            one.publish("x", b"once", 2, 7, dup=True)
            assert await one.next(Pubrec) == Pubrec(7)
            assert [row.message.payload for row in await agent.spool()] == [b"once"]
            one.send(Pubrel(7))
            assert await one.next(Pubcomp) == Pubcomp(7)
            one.send(Pubrel(7))
            assert (await one.next(Pubcomp)).reason_code == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            one.publish("x", b"another", 2, 7)
            await one.next(Pubrec)
            assert len(await agent.spool()) == 2

    complete(run())


def test_a_delivery_keeps_its_packet_id_though_the_agent_is_killed(tmp_path: Path) -> None:
    """M2: it comes again under the same packet id, until its exchange has ended; after PUBREC only PUBREL comes."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = await agent.client("one")
            await one.subscribe("#")
            one.publish("x", b"1", 2, 1)
            one.publish("y", b"2", 1, 2)
            await one.next(Pubrec)
            await one.next(Puback)
            first, second = await one.next(Publish), await one.next(Publish)
        async with broker(tmp_path) as agent:
            one = await agent.client("one", present=True)
            again = await one.next(Publish), await one.next(Publish)
            assert [(packet.packet_id, packet.payload, packet.dup) for packet in again] == [
                (first.packet_id, b"1", True),
                (second.packet_id, b"2", True),
            ]
            one.send(Pubrec(first.packet_id), Puback(second.packet_id))
            assert await one.next(Pubrel) == Pubrel(first.packet_id)
            await one.none(agent)
        async with broker(tmp_path) as agent:
            one = await agent.client("one", present=True)
            assert await one.next(Pubrel) == Pubrel(first.packet_id)
            one.send(Pubcomp(first.packet_id))
            await one.none(agent)
            assert (await agent.changes.make(lambda store: store.status()))["waiting_for_clients"] == 0

    complete(run())


@versions
def test_a_full_store_refuses_and_keeps_the_client_s_message(tmp_path: Path, version: int) -> None:
    """M2: 0x97; 3.1.1 has no reason codes, so the message is not acknowledged and the connection ends."""

    async def run() -> None:
        async with broker(tmp_path, messages=1) as agent:
            one = await agent.client("one", version)
            one.publish("x", b"", 1, 1)
            await one.next(Puback)
            one.publish("x", b"", 2, 2)
            if version == 5:
                answer = await one.next(Pubrec)
                assert answer.reason_code == REFUSED
                assert "full" in (answer.properties or {})["reason_string"]
                one.publish("x", b"", 2, 2)  # the refusal has ended the exchange
                assert (await one.next(Pubrec)).reason_code == REFUSED
            else:
                await one.closed()
                await agent.client("one", 4, present=True)
            agent.connections[0].publish("x", b"", 0)
            assert len(await agent.spool()) == 1

    complete(run())


@versions
def test_without_a_route_a_message_is_refused(tmp_path: Path, version: int) -> None:
    """Also one to an inbox: no wildcard gives the right to write there, as agents do."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            for topic in ("@far", "$SYS/x"):
                one = await agent.client(topic[1:], version)
                one.publish(topic, b"", 1)
                if version == 5:
                    assert (await one.next(Puback)).reason_code == ReasonCode.NOT_AUTHORIZED
                else:
                    await one.closed()
                will = agent.wire(version)
                will.send(Connect("w", version, True, will=Will(topic)))
                assert (await will.next(Connack)).reason_code != 0
            assert not await agent.spool()

    complete(run())


def test_a_slow_subscriber_s_full_queue_refuses_the_publisher(tmp_path: Path) -> None:
    """Nothing of a refused message is left anywhere: neither in another queue nor in the spool."""

    async def run() -> None:
        async with broker(tmp_path, queue_messages=1, local_delivery=True) as agent:
            slow, one = await agent.client("slow"), await agent.client("one")
            await slow.subscribe("local/a")
            await one.subscribe("local/#", qos=0)
            slow.lose()
            one.publish("local/a", b"1", 1, 1)
            assert (await one.next(Puback)).reason_code == 0
            assert (await one.next(Publish)).payload == b"1"
            one.publish("local/a", b"2", 1, 1)
            assert (await one.next(Puback)).reason_code == REFUSED
            await one.none(agent)
            slow = await agent.client("slow", present=True)
            got = await slow.next(Publish)
            assert (got.payload, got.dup) == (b"1", False)
            slow.send(Puback(got.packet_id))
            one.publish("local/a", b"3", 1, 1)
            assert (await one.next(Puback)).reason_code == 0

    complete(run())


@versions
def test_retained_messages(tmp_path: Path, version: int) -> None:
    """On disk, bounded; an empty one clears (3.3.1.3)."""

    async def run() -> None:
        async with broker(tmp_path, retained_messages=1) as agent:
            one = await agent.client("one", version)
            one.publish("local/a", b"kept", 1, 1, retain=True)
            await one.next(Puback)
            one.publish("local/b", b"too many", 1, 2, retain=True)
            if version == 5:
                assert (await one.next(Puback)).reason_code == REFUSED
            else:
                await one.closed()
        async with broker(tmp_path) as agent:
            one = await agent.client("one", version, present=True)
            await one.subscribe("local/+", qos=1)
            got = await one.next(Publish)
            assert (got.topic, got.payload, got.retain) == ("local/a", b"kept", True)
            one.send(Puback(got.packet_id))
            one.publish("local/a", b"", 1, 1, retain=True)
            await one.next(Puback)
            got = await one.next(Publish)
            assert (got.payload, got.retain) == (b"", False)
            other = await agent.client("other", version)
            await other.subscribe("#")
            await other.none(agent)

    complete(run())


def test_takeover_and_what_a_session_remembers(tmp_path: Path) -> None:
    """A newer connection ends the older one (3.1.4); the session goes on, or begins anew with a clean start."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            older = await agent.client("one")
            await older.subscribe("local/#")
            newer = await agent.client("one", present=True)
            assert (await older.next(Disconnect)).reason_code == ReasonCode.SESSION_TAKEN_OVER
            await older.closed()
            older.lose()
            newer.publish("local/x", b"1", 1)
            await newer.next(Puback)
            assert (await newer.next(Publish)).payload == b"1"
            clean = await agent.client("one", clean=True)
            clean.publish("local/x", b"2", 1)
            await clean.next(Puback)
            await clean.none(agent)
            # Two at once, the second before the first has its answer: one session, and the last has it.
            first, second = agent.wire(), agent.wire()
            first.send(Connect("two", 5, False, properties=LASTS))
            second.send(Connect("two", 5, False, properties=LASTS))
            await second.next(Connack)
            await second.subscribe("local/#")
            first.lose()
            await second.none(agent)
            assert agent.hub.connected == 2

    complete(run())


def test_a_session_ends_with_its_expiry(tmp_path: Path) -> None:
    """M2: what waits for it ends then, too."""
    clock = Clock()

    async def run() -> None:
        async with broker(tmp_path, clock=clock, session_expiry_s=100) as agent:
            one = agent.wire()
            one.send(Connect("one", 5, True, properties={"session_expiry_interval": 5_000}))
            assert ((await one.next(Connack)).properties or {})["session_expiry_interval"] == 100
            await one.subscribe("local/#")
            one.lose()
            brief = await agent.client("brief", properties={})
            brief.publish("local/x", b"", 1)
            await brief.next(Puback)
            brief.send(Disconnect())
            clock.now_s += 99
            assert await agent.changes.make(lambda store: store.expire()) == []
            clock.now_s += 2
            assert await agent.changes.make(lambda store: store.expire()) == [("one", 1)]
            assert (await agent.changes.make(lambda store: store.status()))["sessions"] == 0

    complete(run())


def test_an_expired_message_is_not_delivered(tmp_path: Path) -> None:
    clock = Clock()

    async def run() -> None:
        async with broker(tmp_path, clock=clock) as agent:
            one = await agent.client("one")
            await one.subscribe("local/#")
            one.lose()
            other = await agent.client("other")
            for lifetime_s in (10, 100):
                other.publish("local/x", b"%d" % lifetime_s, 1, properties={"message_expiry_interval": lifetime_s})
                await other.next(Puback)
            clock.now_s += 50
            one = await agent.client("one", present=True)
            got = await one.next(Publish)
            assert got.payload == b"100"
            assert (got.properties or {})["message_expiry_interval"] == 50
            await one.none(agent)

    complete(run())


def test_subscription_options(tmp_path: Path) -> None:
    """No Local, overlapping subscriptions with identifiers, Retain Handling; shared ones are refused (3.8.3.1)."""

    async def run() -> None:
        async with broker(tmp_path, subscriptions=3) as agent:
            one = await agent.client("one")
            one.send(Subscribe(1, [Subscription("$share/g/x", 1), Subscription("local/own", 1, no_local=True)]))
            assert (await one.next(Suback)).reason_codes == [ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, 1]
            await one.subscribe("local/x", qos=0, properties={"subscription_identifier": [7]})
            await one.subscribe("local/+", qos=1, properties={"subscription_identifier": [8]})
            one.send(Subscribe(2, [Subscription("one/too/many")]))
            assert (await one.next(Suback)).reason_codes == [REFUSED]
            one.send(Unsubscribe(3, ["local/own", "unknown"]))
            assert (await one.next(Unsuback)).reason_codes == [0, ReasonCode.NO_SUBSCRIPTION_EXISTED]
            one.publish("local/x", b"", 2)
            await one.next(Pubrec)
            got = await one.next(Publish)
            assert (got.qos, sorted((got.properties or {})["subscription_identifier"])) == (1, [7, 8])
            await one.none(agent)
            one.publish("local/r", b"r", 0, retain=True)
            await one.next(Publish)
            await one.subscribe(Subscription("local/r", 0, retain_handling=2))
            await one.none(agent)
            await one.subscribe(Subscription("local/r", 0))
            assert (await one.next(Publish)).retain is True

    complete(run())
