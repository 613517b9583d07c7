"""What applications see of the client: states of messages, loss, refusal, options (M1, G3, G13)."""

import asyncio
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from edge.client.client import Client
from edge.client.errors import (
    ClientClosed,
    Expired,
    MissingPackage,
    NotReachable,
)
from edge.client.kafka_options import KafkaOptions
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.message import Message, MessageState
from edge.errors import ConnectionLost, PublishRefused
from harness.keys import Authority
from mqtt.codes import ReasonCode
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY, client, complete, url_of
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.edge.given_up import given_up
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
@pytest.mark.parametrize("bearer", ["mqtt", "ws"])
def test_publish_and_subscribe(gateway: SocketGateway, tmp_path: Path, version: str, bearer: str) -> None:
    async def run() -> None:
        port = gateway.mqtt_port if bearer == "mqtt" else gateway.websocket_port
        async with client(
            f"{bearer}://{HOST}:{port}", f"both-{version}-{bearer}", store=tmp_path / "o", mqtt_version=version
        ) as both:
            assert await both.subscribe(f"{version}/{bearer}/#", qos=2) == [2]
            sent = [await both.publish(f"{version}/{bearer}/x", b"%d" % qos, qos=qos) for qos in (0, 1, 2)]
            for message in sent:
                await message.acknowledged
                assert message.state is MessageState.ACKNOWLEDGED
            got = [(await anext(both.messages())).payload for _ in sent]
            assert sorted(got) == [b"0", b"1", b"2"]
            await both.unsubscribe(f"{version}/{bearer}/#")
            await both.drained()
        assert not both.is_connected

    complete(run())


def test_published_while_nothing_is_reachable(gateway: SocketGateway, tmp_path: Path) -> None:
    """It is on disk when publish returns, and sent by a later process, in order (G13)."""

    async def run() -> None:
        failed: list[Message] = []
        async with client(NOBODY, store=tmp_path / "o") as away:
            messages = [await away.publish("away", b"%d" % number, qos=1 + number % 2) for number in range(10)]
            with pytest.raises(NotReachable) as error:
                await away.connected()
            assert [attempt.target for attempt in error.value.attempts] == [NOBODY, NOBODY]
            waiting = asyncio.ensure_future(_acknowledged(messages[0]))
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await waiting
        assert {message.state for message in messages} == {MessageState.ACCEPTED}
        with pytest.raises(ClientClosed):
            await away.publish("away")
        with pytest.raises(ClientClosed, match="once"):
            await away.__aenter__()
        async with client(url_of(gateway), "reader") as reader:
            await reader.subscribe("away", qos=2)
            async with client(
                url_of(gateway), store=tmp_path / "o", on_failed=lambda message, _: failed.append(message)
            ) as back:
                await back.drained()
            got = [(await anext(reader.messages())).payload for _ in range(10)]
        assert got == [b"%d" % number for number in range(10)]
        assert not failed

    complete(run())


async def _acknowledged(message: Message) -> None:
    await message.acknowledged


def test_refused_by_the_gateway(gateway: SocketGateway, tmp_path: Path) -> None:
    async def run() -> None:
        failed: list[tuple[str, Exception]] = []
        async with client(
            url_of(gateway), store=tmp_path / "o", on_failed=lambda m, e: failed.append((m.topic, e))
        ) as one:
            await one.connected()
            message = await one.publish("$SYS/x", b"", qos=2)
            with pytest.raises(PublishRefused):
                await message.acknowledged
            assert message.state is MessageState.REFUSED
            assert message.error is failed[0][1]
            await one.drained()

    complete(run())


def test_a_callback_that_raises_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called for a message that is refused, and for one that expires. The loop reports its errors."""

    monkeypatch.setattr("edge.client.client.EXPIRY_CHECK_S", 0.02)

    async def run() -> None:
        reported: list[BaseException | None] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))

        def fails(message: Message, error: Exception) -> None:
            raise RuntimeError(message.topic)

        async with ServerHost() as server:
            server.session.refuse = {b"bad": ReasonCode.QUOTA_EXCEEDED}
            async with client(server.url, store=tmp_path / "o", on_failed=fails) as one:
                await one.connected()
                bad, good = await asyncio.gather(one.publish("refused", b"bad"), one.publish("t", b"good"))
                await good.acknowledged
                with pytest.raises(PublishRefused):
                    await bad.acknowledged
                await one.drained()
                assert server.connections == 1
        async with client(NOBODY, store=tmp_path / "o", on_failed=fails) as away:
            for topic in ("expired 1", "expired 2"):
                late = await away.publish(topic, lifetime_s=0.01)
                with pytest.raises(Expired):
                    await late.acknowledged
        assert [str(error) for error in reported] == ["refused", "expired 1", "expired 2"]

    complete(run())


def test_too_large_for_the_server() -> None:
    """Its CONNACK says so, after the message was accepted."""

    async def run() -> None:
        async with ServerHost({"maximum_packet_size": 100}) as server, client(server.url) as one:
            large = await one.publish("t", b"x" * 200)
            small = await one.publish("t", b"y")
            with pytest.raises(PublishRefused) as refused:
                await large.acknowledged
            assert refused.value.reason is ReasonCode.PACKET_TOO_LARGE
            await small.acknowledged

    complete(run())


def test_connections_break_while_messages_flow(tmp_path: Path) -> None:
    """Exactly once at QoS 2, in order, through windows smaller than what waits."""

    async def run() -> None:
        async with ServerHost({"receive_maximum": 5}) as server:
            limits = Limits(window_messages=20)
            async with client(server.url, store=tmp_path / "o", limits=limits) as one:
                for start in range(0, 300, 50):
                    await asyncio.gather(*(one.publish("t", b"%d" % n, qos=2) for n in range(start, start + 50)))
                    server.drop()
                await one.drained()
            assert [packet.payload for packet in server.session.stored] == [b"%d" % n for n in range(300)]
            assert server.connections > 1

    complete(run())


def test_who_takes_the_name_ends_the_client(gateway: SocketGateway, tmp_path: Path) -> None:
    """A final refusal: the application hears it from whatever it waits for, and what was accepted is in the file."""

    async def run() -> None:
        async with client(url_of(gateway), "name", store=tmp_path / "o") as first:
            await first.connected()
            waiting = asyncio.ensure_future(anext(first.messages()))
            async with client(url_of(gateway), "name") as second:
                await second.connected()
                with pytest.raises(ConnectionLost):
                    await waiting
                for call in (first.publish("t"), first.subscribe("t"), first.connected(), first.drained()):
                    with pytest.raises(ConnectionLost) as lost:
                        await call
                    assert lost.value.reason is ReasonCode.SESSION_TAKEN_OVER

    complete(run())


def test_a_new_store_does_not_resume_a_session_it_does_not_know(tmp_path: Path) -> None:
    """The server may know packet ids of an earlier store and would take new messages for repeated ones."""

    async def run() -> None:
        async with ServerHost() as server:
            for name in ("first", "second"):
                async with client(server.url, store=tmp_path / name) as one:
                    await (await one.publish("t", name, qos=2)).acknowledged
            assert [connect.clean_start for connect in server.session.connects] == [True, True]
            async with client(server.url, store=tmp_path / "second") as again:
                await again.connected()
            assert not server.session.connects[-1].clean_start

    complete(run())


@pytest.mark.parametrize(
    "wrong",
    [
        {"client_id": ""},
        {"client_id": "a+b"},
        {"client_id": "x" * 1025},
        {"bearer": "carrier-pigeon"},
        {"bearer": "ws"},
        {"mqtt_version": "4"},
        {"tries": 1},
        {"keep_alive_s": -1},
        {"session_expiry_s": 0},
        {"connect_points": []},
        {"connect_points": ["ftp://h"]},
        {"connect_points": ["mqtt://h", "http://h"]},
        {"connect_points": ["http://h/path"]},
        {"connect_points": ["http://h"], "client_id": "no name"},
        {"connect_points": ["http://h"], "username": "a:b", "password": b"secret"},
        {"connect_points": ["http://h"], "password": b"secret, but no token"},
        {"connect_points": ["kafka://"]},
        {"connect_points": ["kafka://h"], "username": "u"},
        {"connect_points": (), "access_points": ["https://h"], "bearer": "kafka"},
        {"kafka": KafkaOptions()},
        {"connect_points": ["mqtt://user:secret@h"]},
        {"connect_points": ["mqtt://h/path"]},
        {"connect_points": ["mqtt://h:99999"]},
        {"access_points": ["https://h"]},
        {"connect_points": (), "access_points": ["ftp://h"]},
    ],
    ids=str,
)
def test_options_that_are_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as error:
        Client(**({"client_id": "c", "connect_points": [NOBODY]} | wrong))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"ca_file": "f"},
        {"tls": True, "key_file": "f"},
        {"sasl_mechanism": "GSSAPI", "username": "u", "password": "secret"},
        {"sasl_mechanism": "PLAIN", "username": "u", "password": "secret"},
        {"sasl_mechanism": "SCRAM-SHA-256", "username": "u"},
        {"username": "u", "password": "secret"},
    ],
    ids=str,
)
def test_options_of_kafka_that_are_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="KafkaOptions") as error:
        KafkaOptions(**wrong)
    assert "secret" not in str(error.value)
    assert "secret" not in repr(KafkaOptions(sasl_mechanism="SCRAM-SHA-512", username="u", password="secret"))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python is an extra; the outbox is free again afterwards."""
    for name in ("kafka", "edge.client.kafka_bearer", "edge.client.kafka_producer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "kafka", None)

    async def run() -> None:
        with pytest.raises(MissingPackage, match=r"waystation-edge\[kafka\]"):
            async with Client(client_id="c", connect_points=["kafka://h"]):
                pass

    complete(run())


def test_the_password_is_not_shown() -> None:
    one = Client(client_id="c", connect_points=[NOBODY], username="u", password=b"secret")
    assert "secret" not in repr(one._options)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_over_tls_to_a_server_that_is_trusted(tmp_path: Path, is_trusted: bool) -> None:
    """With another authority nothing is said, and the reason is among the attempts."""
    authority = Authority(tmp_path, "right")
    signed = authority.sign("server")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(signed.certificate, signed.key)
    trusts = authority if is_trusted else Authority(tmp_path, "wrong")

    async def run() -> None:
        async with ServerHost(tls=theirs) as server:
            ours = ssl.create_default_context(cafile=str(trusts.file))
            async with client(server.url, tls=ours, username="u", password=b"secret") as one:
                if is_trusted:
                    await (await one.publish("t")).acknowledged
                    assert server.session.connects[0].password == b"secret"
                else:
                    with pytest.raises(NotReachable, match="certificate"):
                        await one.connected()
                    assert not server.session.connects

    complete(run())


def test_who_no_longer_waits_for_the_beginning_leaves_no_store_open() -> None:
    """The thread goes on to open it, and nobody would close it."""
    begun, may_go, closed = threading.Event(), threading.Event(), threading.Event()

    class SlowStore(MemoryStore):
        def __init__(self) -> None:
            begun.set()
            assert may_go.wait(20)
            super().__init__("van-7")

        def close(self) -> None:
            closed.set()

    async def run() -> None:
        opening = asyncio.create_task(client(NOBODY, store=SlowStore).__aenter__())
        await eventually(begun.is_set, "the store is being opened")
        opening.cancel()
        await asyncio.sleep(0)
        may_go.set()
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert closed.is_set()

    complete(run())


@pytest.mark.parametrize("turns", range(8))
def test_who_no_longer_waits_for_the_end_leaves_no_file_open(tmp_path: Path, turns: int) -> None:
    async def run() -> None:
        async with ServerHost() as server:
            one = client(server.url, store=tmp_path / "o")
            await one.__aenter__()
            await one.connected()
            await given_up(one.close(), turns)
            assert turns == 0 or (one._closing is not None and one._closing.done()), "the file is not released yet"
            await asyncio.gather(one.close(), one.close())
            async with client(server.url, store=tmp_path / "o") as again:
                await again.connected()

    complete(run())


def test_it_is_closed_although_the_server_is_silent() -> None:
    async def run() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with client(f"mqtt://{HOST}:{port}") as one:
                await one.publish("t")
                await eventually(lambda: one._bearer.connections == 1, "it connects")

    complete(run())
