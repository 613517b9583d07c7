"""HTTP as a bearer: publish, subscribe, inbox, requests, and what is sent again is stored once (G11, G13, Q1)."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.client.client import Client
from edge.client.connecting import Connected
from edge.client.errors import NotReachable, NotSupported
from edge.client.message import IncomingMessage, MessageState
from edge.errors import ConnectionLost, PublishRefused, SubscribeRefused
from gateway.host.authenticator import Credentials
from gateway.shard.rules import ClientRules, Everything
from harness.keys import Authority
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from schemas.members import GatewayAddress
from tests.faithful_client import eventually
from tests.mosquitto import free_port
from tests.unit.edge.client.client_harness import client
from tests.unit.edge.given_up import given_up
from tests.unit.gateway.http.http_harness import HttpHarness, run
from tests.unit.gateway.members.heartbeat_records import heartbeat


def url_of(harness: HttpHarness) -> str:
    return f"http://127.0.0.1:{harness.port}"


def test_publish_and_subscribe_and_acknowledge(tmp_path: Path) -> None:
    """All that a message can carry; each message is given once, also when another subscription opens a new stream."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path / "g").start()
        async with client(url_of(harness), store=tmp_path / "o") as van:
            assert await van.subscribe("vans/+/log", qos=2) == [1]
            properties: dict[str, Any] = {
                "content_type": "text/plain; charset=utf-8",
                "user_properties": [("a b", "ü,="), ("a b", "")],
                "response_topic": "re/ply",
                "correlation": b"\xff\0",
                "lifetime_s": 60,
            }
            sent = [await van.publish("vans/7/log", b"%d\xff" % qos, qos=qos, **properties) for qos in (0, 1, 2)]
            for message in sent:
                await message.acknowledged
                assert message.state is MessageState.ACKNOWLEDGED
            first = await anext(van.messages())
            assert (first.topic, first.payload, first.qos) == ("vans/7/log", b"0\xff", 0)
            assert (first.content_type, first.response_topic) == ("text/plain; charset=utf-8", "re/ply")
            assert (first.correlation, first.user_properties) == (b"\xff\0", [("a b", "ü,="), ("a b", "")])
            assert [(await anext(van.messages())).payload] == [b"1\xff"]
            await van.subscribe("é/#", "vans/+/log")  # a new stream: what is not acknowledged comes again
            await (await van.publish("é/ &%2F?/..", "später", retain=True)).acknowledged
            rest = [await anext(van.messages()) for _ in range(2)]
            assert [one.payload for one in rest] == [b"2\xff", "später".encode()]
            assert rest[1].topic == "é/ &%2F?/.."
            await van.unsubscribe("vans/+/log", "nothing")
            await (await van.publish("vans/7/log", b"unheard")).acknowledged
            await (await van.publish("é", b"last")).acknowledged
            assert (await anext(van.messages())).payload == b"last"
            assert van.usage == (0, 0)

    run(scenario())


@pytest.mark.parametrize("turns", range(1, 5))
def test_who_no_longer_waits_for_a_subscription_still_gets_messages(tmp_path: Path, turns: int) -> None:
    """Another subscription is another stream: whatever has become of it, one of them is read."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path / "g").start()
        async with client(url_of(harness)) as van:
            await van.subscribe("news")
            await given_up(van.subscribe("more"), turns)
            await (await van.publish("news", b"heard")).acknowledged
            assert (await asyncio.wait_for(anext(van.messages()), 20)).payload == b"heard"

    run(scenario())


def test_inbox_and_requests(tmp_path: Path) -> None:
    """The gateway chooses the client id; a request names the inbox that it has there."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with client(url_of(harness), "shop") as shop, client(url_of(harness), "van") as van:
            assert await shop.open_inbox() == "@http:shop"

            async def answer() -> None:
                question = await anext(shop.messages())
                assert question.response_topic == "@http:van"
                await shop.reply(question, b"at 9")

            answering = asyncio.create_task(answer())
            assert (await van.request("@http:shop", "when?", timeout_s=20)).payload == b"at 9"
            await answering

    run(scenario())


def test_nothing_is_given_twice_or_lost(tmp_path: Path) -> None:
    """G8: over lost streams and a killed gateway, acknowledged out of order. What a process has not acknowledged comes
    again to the next one."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path / "g", gateway={"http_port": free_port()}).start()
        async with client(url_of(harness), store=tmp_path / "o") as van:
            await van.subscribe("t")
            for number in range(12):
                await harness.post("t", b"%d" % number)
            got = [await taken(van) for _ in range(6)]
            for one in (got[3], got[1], got[0]):
                one.acknowledge()
            bearer: Any = van._bearer
            await eventually(lambda: bearer._told == bearer._events.last, "it is told")
            bearer.abort()
            await eventually(lambda: bearer.connections == 2 and van.is_connected, "it is connected again")
            got[2].acknowledge()
            got += [await taken(van) for _ in range(2)]
            await harness.restart()
            await eventually(lambda: bearer.connections > 2 and van.is_connected, "it is connected again")
            got += [await taken(van) for _ in range(2)]
            assert [one.payload for one in got] == [b"%d" % number for number in range(10)]
        async with client(url_of(harness), store=tmp_path / "o") as again:
            await again.subscribe("t")
            rest = [(await anext(again.messages())).payload for _ in range(8)]
        assert rest == [b"%d" % number for number in range(4, 12)]

    run(scenario())


async def taken(van: Client) -> IncomingMessage:
    """The next message; asking for it acknowledges none."""
    inbox = van._inbox
    await inbox._changes.until(lambda: bool(inbox._waiting))
    return inbox._waiting.popleft()


def test_sent_again_and_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q1: the gateway has stored the messages, and is killed before the client knows."""
    monkeypatch.setattr("gateway.http.server._STOP_TIMEOUT_S", 0.01)

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path / "g", gateway={"http_port": free_port()}).start()
        async with client(url_of(harness), store=tmp_path / "o") as van:
            await van.connected()
            harness.bus.held_acks = {harness.topics.ingress}
            sent = [await van.publish(f"t/{n}", b"%d" % n, qos=n % 3) for n in range(5)]
            await eventually(lambda: harness.bus.in_flight == 5, "all are on the way")
        await harness.restart()
        assert {one.state for one in sent} == {MessageState.ACCEPTED}
        async with client(url_of(harness), store=tmp_path / "o") as again:
            await again.drained()
        assert sorted(await harness.stored()) == [(f"t/{n}", b"%d" % n) for n in range(5)]

    run(scenario())


def test_what_the_gateway_refuses(tmp_path: Path) -> None:
    """Messages, and subscriptions: the others stay in force."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with client(url_of(harness), http_in_order=False) as van:
            await van.subscribe("good")
            with pytest.raises(PublishRefused) as refused:
                await (await van.publish("$SYS/x", b"")).acknowledged
            assert refused.value.reason is ReasonCode.TOPIC_NAME_INVALID
            with pytest.raises(SubscribeRefused) as error:
                await van.subscribe("a/" * 5_000 + "b", "fine")
            assert set(error.value.reasons.values()) == {ReasonCode.PACKET_TOO_LARGE}
            for wrong in ("#/x", ""):
                with pytest.raises(LocalProtocolError):
                    await van.subscribe(wrong)
            with pytest.raises(NotSupported):
                await van.subscribe("$share/g/x")
            for content_type in ("", "ü", "a\nX: y", "application/x-www-form-urlencoded"):
                with pytest.raises(LocalProtocolError):
                    await van.publish("good", content_type=content_type)
            with pytest.raises(LocalProtocolError):
                await van.publish("good", user_properties=[("", "x")])
            await asyncio.gather(*[van.publish("good", b"%d" % n) for n in range(40)])
            assert {(await anext(van.messages())).payload for _ in range(40)} == {b"%d" % n for n in range(40)}

    run(scenario())


class ChangingRules(Everything):
    """All may be done, but these filters are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()

    def subscribe(self, topic_filter: str) -> ReasonCode:
        return ReasonCode.NOT_AUTHORIZED if topic_filter in self.refused else ReasonCode.SUCCESS

    async def admit(self, credentials: Credentials) -> ClientRules:
        return self


def test_a_subscription_that_is_no_longer_allowed_ends_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R11: the rules have changed since it was granted. The client is told by the log, stays connected, publishes, and
    keeps its other subscriptions, also when it changes them."""
    rules = ChangingRules()

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, authenticator=rules).start()
        async with client(url_of(harness)) as van:
            await van.subscribe("a", "b", "c")
            rules.refused.add("a")
            bearer: Any = van._bearer
            bearer.abort()
            await eventually(lambda: bearer.connections == 2 and van.is_connected, "it is connected again")
            assert "a (NOT_AUTHORIZED)" in caplog.text
            rules.refused.add("b")
            with pytest.raises(SubscribeRefused) as error:
                await van.subscribe("d", "a")
            assert error.value.reasons == {"d": ReasonCode.GRANTED_QOS_1, "a": ReasonCode.NOT_AUTHORIZED}
            assert "b (NOT_AUTHORIZED)" in caplog.text
            for topic in ("a", "b", "c", "d"):
                await (await van.publish(topic, topic)).acknowledged
            assert [(await anext(van.messages())).topic for _ in range(2)] == ["c", "d"]

    run(scenario())


def test_another_client_takes_the_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with client(url_of(harness)) as first:
            await first.connected()
            async with client(url_of(harness)) as second:
                await second.connected()
                with pytest.raises(ConnectionLost) as error:
                    await first.ended()
                assert error.value.reason is ReasonCode.SESSION_TAKEN_OVER
                with pytest.raises(ConnectionLost):
                    await first.subscribe("x")

    run(scenario())


def test_https_by_way_of_an_access_point(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    gateway, own = authority.sign("gateway"), authority.sign("van")
    tls = {"certificate": str(gateway.certificate), "key": str(gateway.key), "client_ca": str(authority.file)}
    tls |= {"client_certificates": "required"}
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(own.certificate, own.key)

    async def scenario() -> None:
        harness = HttpHarness(tmp_path / "g")
        settings = msgspec.structs.replace(harness.settings().gateway.tls, **tls, https_port=0)
        harness._gateway |= {"tls": settings}
        await harness.start()
        address = GatewayAddress("127.0.0.1", harness.ports["https"])
        harness.members.apply("gateway-1", heartbeat("gateway-1", seq=9, addresses={"https": address}), 0.0)
        van = Client(
            client_id="van-7",
            access_points=[f"https://127.0.0.1:{harness.ports['https']}"],
            bearer="https",
            tls=context,
            server_hostname="localhost",
        )
        async with van:
            await (await van.publish("x", bytes(2_000))).acknowledged
            step = van._loop._machine.step
            assert isinstance(step, Connected)
            assert str(step.point) == f"https://127.0.0.1:{harness.ports['https']}"
        async with client(str(step.point)) as distrustful:
            with pytest.raises(NotReachable, match=r"(?i)certificate"):
                await distrustful.connected()

    run(scenario())
