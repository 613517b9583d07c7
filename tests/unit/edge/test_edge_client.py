"""The asyncio client against our gateway: what callers see of messages, refusals, losses and endings."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from edge.errors import ConnectionLost, PublishRefused, SubscribeRefused
from edge.hooks import Hooks
from edge.link import Address
from edge.mqtt_client import INBOX_MAX, MqttClient
from edge.reconnect import FullJitter, StayConnected
from mqtt.client_events import EndedBy
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Connect, Packet, Publish, Will
from tests.faithful_client import FaithfulClient, eventually
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway

QUICKLY = FullJitter(0.02, 0.05)


def client(
    gateway: SocketGateway, name: str, *, kept: bool = False, path: str | None = None, **more: Any
) -> MqttClient:
    port = gateway.websocket_port if path else gateway.mqtt_port
    properties = {"session_expiry_interval": 600} if kept else None
    return MqttClient(
        Address(HOST, port, websocket_path=path), Connect(name, 5, not kept, 60, properties=properties), **more
    )


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("path", [None, "/mqtt"])
def test_over_each_link_and_loop(gateway: SocketGateway, path: str | None, loop: Callable[..., None]) -> None:
    async def run() -> None:
        web = client(gateway, "web", path=path)
        await web.connect()
        await web.subscribe("web/#", qos=2)
        payloads = [b"%d" % number for number in range(50)] + [b"x" * 100_000]
        answers = [web.publish("web/x", payload, 2) for payload in payloads]
        got = []
        async for message in web.messages():
            got.append(message.payload)
            if len(got) == len(payloads):
                break
        assert got == payloads
        assert set(await asyncio.gather(*answers)) == {ReasonCode.SUCCESS}
        await web.disconnect()

    loop(asyncio.wait_for(run(), 20))


def test_who_leaves_the_loop_acknowledges_with_the_next_message(gateway: SocketGateway) -> None:
    """Whoever asks for it: otherwise all later acknowledgements would wait behind the one message."""

    async def run() -> None:
        name = "leaves-loops"
        got = []
        one = client(gateway, name, kept=True)
        await one.connect()
        await one.subscribe("loops", qos=1)
        for n in range(4):
            await one.publish("loops", b"%d" % n, 1)
        for _ in range(3):
            async for message in one.messages():
                got.append(message.payload)
                break
        await one.disconnect()
        assert got == [b"0", b"1", b"2"]
        again = client(gateway, name, kept=True)
        await again.connect()
        stream = again.messages()
        assert [(await anext(stream)).payload for _ in range(2)] == [b"2", b"3"]  # 2 was not done
        await again.disconnect()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_handler_that_fails_is_given_the_message_again(gateway: SocketGateway) -> None:
    """It, and those behind it, are not acknowledged; the connection ends, and they come again."""
    got: list[bytes] = []

    def fails_once(message: Publish) -> None:
        got.append(message.payload)
        if got.count(b"bad") == 1 and message.payload == b"bad":
            raise ZeroDivisionError

    async def run() -> None:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
        receiver = client(gateway, "handler", kept=True, on_message=fails_once)
        sender = client(gateway, "handler-sender")
        await sender.connect()
        async with StayConnected(receiver, QUICKLY):
            await receiver.subscribe("handler", qos=2)
            answers = [sender.publish("handler", payload, 1) for payload in (b"1", b"bad", b"2", b"3")]
            await asyncio.gather(*answers)
            await eventually(lambda: got[-1:] == [b"3"], "all are handled")
            await receiver.disconnect()
        await sender.disconnect()
        assert got == [b"1", b"bad", b"bad", b"2", b"3"]
        assert failed

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_refused_message_and_a_refused_subscription(gateway: SocketGateway) -> None:
    async def run() -> None:
        refused = client(gateway, "refused")
        await refused.connect()
        for qos in (1, 2):
            with pytest.raises(PublishRefused) as message:
                await refused.publish("$SYS/x", b"", qos)
            assert message.value.reason >= ReasonCode.UNSPECIFIED_ERROR
            assert message.value.reason.name in str(message.value)
        assert await refused.publish("good", b"", 1) < ReasonCode.UNSPECIFIED_ERROR
        with pytest.raises(LocalProtocolError):
            await refused.subscribe("a/#/b")
        await refused.disconnect()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("stays", [False, True])
def test_who_takes_the_name_ends_the_connection(gateway: SocketGateway, stays: bool) -> None:
    """The server's reason reaches everybody who waits; to connect again would only take it back."""

    async def run() -> None:
        first, second = client(gateway, "name"), client(gateway, "name")
        staying = StayConnected(first, QUICKLY)
        if stays:
            staying.start()
            await first.wait_connected()
        else:
            await first.connect()
        waiting = asyncio.create_task(first.messages().__anext__())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await second.connect()
        with pytest.raises(ConnectionLost) as lost:
            await waiting
        assert lost.value.reason is ReasonCode.SESSION_TAKEN_OVER
        assert lost.value.closed.by is EndedBy.SERVER
        with pytest.raises(ConnectionLost):
            first.publish("x", b"", 0)
        with pytest.raises(ConnectionLost):
            await first.subscribe("x")
        assert second.is_connected
        await second.disconnect()
        await staying.stop()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_what_waits_when_the_connection_is_lost(gateway: SocketGateway) -> None:
    """Without another connection to come, whoever waits is told; the message stays in the session."""

    async def run() -> None:
        lone = client(gateway, "lone", kept=True)
        queued = lone.publish("lone", b"x", 1)
        assert not queued.done()
        await lone.connect()
        assert await queued < ReasonCode.UNSPECIFIED_ERROR
        await lone.subscribe("lone", qos=1)
        answer = lone.publish("lone", b"y", 2)
        lone.abort()
        with pytest.raises(ConnectionLost):
            await answer
        assert [message.payload for message in lone.session.unacknowledged] == [b"y"]
        assert (await lone.connect()).session_present
        stream = lone.messages()
        assert (await anext(stream)).payload == b"y"
        await lone.disconnect()
        assert [message async for message in stream] == []

    asyncio.run(asyncio.wait_for(run(), 20))


def test_an_iterator_that_is_slow_stops_reading(gateway: SocketGateway) -> None:
    """What waits for it is bounded, and nothing is lost."""

    async def run() -> None:
        slow = client(gateway, "slow")
        fast = client(gateway, "fast")
        await slow.connect()
        await fast.connect()
        await slow.subscribe("slow", qos=0)
        count = 3 * INBOX_MAX
        for number in range(0, count, 100):
            await asyncio.gather(*(fast.publish("slow", b"%d" % n, 1) for n in range(number, number + 100)))
        got = []
        async for message in slow.messages():
            got.append(int(message.payload))
            assert len(slow._inbox) <= 2 * INBOX_MAX
            if len(got) == count:
                break
        assert got == list(range(count))
        await slow.disconnect()
        await fast.disconnect()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_will_for_each_connection_and_an_observer(gateway: SocketGateway) -> None:
    async def run() -> None:
        seen: list[Packet] = []
        heir = client(gateway, "heir")
        await heir.connect()
        await heir.subscribe("wills", qos=1)
        testator = MqttClient(
            lambda: Address(HOST, gateway.mqtt_port),
            lambda n: Connect("testator", will=Will("wills", b"%d" % n, 1)),
            hooks=Hooks(observe=seen.append),
        )
        async with StayConnected(testator, QUICKLY):
            stream = heir.messages()
            for number in (1, 2, 3):
                await testator.wait_connected()
                testator.abort()
                assert (await anext(stream)).payload == b"%d" % number
            await testator.wait_connected()
            await testator.disconnect()
        assert testator.connections == 4
        assert [type(packet).__name__ for packet in seen] == ["Connack"] * 4
        await heir.disconnect()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_faithful_client_finds_no_fault(gateway: SocketGateway) -> None:
    """What the tests of the gateway's process use, here without one."""

    async def run() -> None:
        sender = await FaithfulClient(lambda: gateway.mqtt_port, "f-sender").come()
        receiver = await FaithfulClient(lambda: gateway.mqtt_port, "f-receiver").come()
        slow = await FaithfulClient(lambda: gateway.mqtt_port, "f-slow", receive_maximum=4, slow_s=0.001).come()
        for who in (receiver, slow):
            await who.subscribe("f/#", 2)
        for number in range(300):
            sender.publish("f/x", b"%d" % number, 1 + number % 2)
            if not number % 30:
                await asyncio.sleep(0.01)
                (sender, receiver, slow)[number // 30 % 3].drop()
        await sender.published()
        await receiver.leave(goodbye=True)
        await receiver.come()
        wanted = [b"%d" % number for number in range(1, 300, 2)]
        for who in (receiver, slow):
            await eventually(lambda who=who: len(set(who.payloads)) == 300, "everything")  # type: ignore[misc]
            assert [got.payload for got in who.got if got.qos == 2 and int(got.payload) % 2] == wanted
        for who in (sender, receiver, slow):
            assert not who.faults
            assert not who.lost_sessions
            await who.leave(goodbye=True)
        assert len(sender.acknowledged) == 300

    asyncio.run(asyncio.wait_for(run(), 60))


def test_subscribe_refused_names_the_filters() -> None:
    error = SubscribeRefused({"a": ReasonCode.GRANTED_QOS_1, "b": ReasonCode.NOT_AUTHORIZED}, {"reason_string": "no"})
    assert "b (NOT_AUTHORIZED)" in str(error)
    assert "a (" not in str(error)
