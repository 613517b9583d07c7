"""What applications see of the client: states of messages, replies, limits, loss, refusal (M1, M2, G3, G13)."""

import asyncio
import gc
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from edge.client.client import Client
from edge.client.errors import (
    ClientClosed,
    ClientError,
    Expired,
    LifetimeNotAllowed,
    MessageTooLarge,
    NoReply,
    NotReachable,
    StoreFull,
    TooManyRequests,
)
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.message import Message, MessageState
from edge.client.store import Batch
from edge.errors import ConnectionLost, PublishRefused
from edge.reconnect import FullJitter
from harness.keys import Authority
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from tests.faithful_client import eventually
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway

QUICKLY = FullJitter(0.01, 0.02)
NOBODY = f"mqtt://{HOST}:1"


def client(url: str, name: str = "van-7", **more: Any) -> Client:
    return Client(client_id=name, connect_points=[url], backoff=QUICKLY, **more)


def url_of(gateway: SocketGateway) -> str:
    return f"mqtt://{HOST}:{gateway.mqtt_port}"


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 30))


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


def test_limits_refuse_before_acceptance(tmp_path: Path) -> None:
    async def run() -> None:
        limits = Limits(messages=3, total_bytes=1_000, message_bytes=600, lifetime_s=100)
        async with client(NOBODY, store=tmp_path / "o", limits=limits) as one:
            await one.publish("t", b"x" * 500)
            with pytest.raises(MessageTooLarge, match="600"):
                await one.publish("t", b"x" * 600)
            with pytest.raises(StoreFull, match="1,000"):
                await one.publish("t", b"x" * 500)
            for wrong_s in (0, -1, 101, float("nan")):
                with pytest.raises(LifetimeNotAllowed):
                    await one.publish("t", lifetime_s=wrong_s)
            await one.publish("t")
            await one.publish("t")
            with pytest.raises(StoreFull, match="3 messages"):
                await one.publish("t")
            with pytest.raises(LocalProtocolError):
                await one.publish("a/+")
        async with client(NOBODY, store=tmp_path / "o", limits=limits) as again:
            with pytest.raises(StoreFull):
                await again.publish("t")

    complete(run())


def test_a_full_outbox_takes_messages_again_once_some_are_acknowledged() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=Limits(messages=2)) as one:
            for number in range(20):
                while True:
                    try:
                        await one.publish("t", b"%d" % number)
                        break
                    except StoreFull:
                        await one.drained()
            await one.drained()
            assert [packet.payload for packet in server.session.stored] == [b"%d" % number for number in range(20)]

    complete(run())


class Times:
    """Both clocks of a device."""

    def __init__(self) -> None:
        self.wall, self.running = 1_000_000.0, 50.0

    def options(self) -> dict[str, Any]:
        return {"wall_s": lambda: self.wall, "running_s": lambda: self.running}


@pytest.mark.parametrize("jump_s", [1e9, -1e9], ids=["set forward", "set back"])
def test_setting_the_clock_changes_no_lifetime(tmp_path: Path, jump_s: float) -> None:
    async def run() -> None:
        times = Times()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            message = await one.publish("t", lifetime_s=10)
            times.wall += jump_s
            times.running += 9
            await one._sending.expire()
            states = [message.state]
            times.running += 1
            with pytest.raises(Expired):
                await message.acknowledged
            states.append(message.state)
            assert states == [MessageState.ACCEPTED, MessageState.EXPIRED]
            await one.drained()

    complete(run())


@pytest.mark.parametrize(("away_s", "expires"), [(9.0, False), (11.0, True), (-1e9, False)])
def test_lifetimes_go_on_while_no_process_runs(tmp_path: Path, away_s: float, expires: bool) -> None:
    """By the wall clock; if it was set back, no time has passed. The application hears of messages it no longer has."""

    async def run() -> None:
        times, failed = Times(), list[tuple[int, str]]()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            await one.publish("t", lifetime_s=10)
        times.wall, times.running = times.wall + away_s, 3.0
        async with client(
            NOBODY, store=tmp_path / "o", on_failed=lambda m, e: failed.append((m.sequence, str(e))), **times.options()
        ) as again:
            await again._sending.expire()
            assert [sequence for sequence, _ in failed] == ([1] if expires else [])
            assert again._outbox.messages == (not expires)

    complete(run())


def test_the_rest_of_the_lifetime_goes_with_the_message(tmp_path: Path) -> None:
    async def run() -> None:
        times = Times()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            await one.publish("t", lifetime_s=100, content_type="text/plain", user_properties=[("a", "1")])
        times.wall += 60
        async with ServerHost() as server, client(server.url, store=tmp_path / "o", **times.options()) as again:
            await again.drained()
            assert server.session.stored[0].properties == {
                "message_expiry_interval": 40, "content_type": "text/plain", "user_property": [("a", "1")],
            }  # fmt: skip

    complete(run())


def test_a_message_that_no_connection_has_sent_expires_and_one_that_was_sent_does_not() -> None:
    """Of those in the session. What became of one that was sent is for the server to say."""

    async def run() -> None:
        times = Times()
        async with ServerHost({"receive_maximum": 1}) as server:
            async with client(server.url, **times.options()) as one:
                await one.connected()
                server.is_deaf = True
                sent = await one.publish("t", b"sent", qos=2, lifetime_s=10)
                unsent = await one.publish("t", b"unsent", qos=2, lifetime_s=10)
                assert len(one._mqtt.session.outbound.messages) == 2
                server.is_closed = True
                server.drop()
                await eventually(lambda: not one.is_connected, "the client notices")
                times.running += 11
                await one._sending.expire()
                assert (sent.state, unsent.state) == (MessageState.ACCEPTED, MessageState.EXPIRED)
                server.is_deaf = server.is_closed = False
                await sent.acknowledged
            assert [packet.payload for packet in server.session.stored] == [b"sent"]

    complete(run())


def test_messages_that_nobody_holds_use_no_memory_here(tmp_path: Path) -> None:
    async def run() -> None:
        async with client(NOBODY, store=tmp_path / "o") as one:
            for _ in range(5):
                await one.publish("t")
            gc.collect()
            assert len(one._sending._messages) == 0
            assert len(one._mqtt.session.outbound.messages) == 0

    complete(run())


class RecordingStore(MemoryStore):
    """Counts what is written."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.added: list[int] = []

    def commit(self, batch: Batch) -> None:
        self.added.append(len(batch.added))
        super().commit(batch)


def test_publishes_of_one_turn_share_a_commit_and_each_is_written_once() -> None:
    """However many wait already."""

    async def run() -> None:
        store = RecordingStore("van-7")
        async with client(NOBODY, store=store) as one:
            await asyncio.gather(*(one.publish("t", b"%d" % number) for number in range(1_000)))
            assert store.added == [1_000]
            await one.publish("t")
            assert store.added == [1_000, 1]

    complete(run())


def test_only_a_window_of_what_waits_is_in_memory(tmp_path: Path) -> None:
    async def run() -> None:
        async with client(NOBODY, store=tmp_path / "o") as one:
            await asyncio.gather(*(one.publish("t", b"%d" % number) for number in range(2_000)))
        held: list[int] = []
        async with (
            ServerHost({"receive_maximum": 10}) as server,
            client(server.url, store=tmp_path / "o", limits=Limits(window_messages=50)) as again,
        ):
            draining = asyncio.ensure_future(again.drained())
            while not draining.done():
                held.append(len(again._mqtt.session.outbound.messages) + len(again._sending._loaded))
                await asyncio.sleep(0)
            assert 50 < max(held) <= 125
            assert [int(packet.payload) for packet in server.session.stored] == list(range(2_000))

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


def test_a_message_that_is_not_acknowledged_is_given_to_the_next_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with ServerHost() as server:
            async with client(server.url, store=tmp_path / "o") as one:
                await one.subscribe("i", qos=2)
                for number in range(3):
                    server.deliver("i", b"%d" % number, 2)
                stream = one.messages()
                assert [(await anext(stream)).payload for _ in range(2)] == [b"0", b"1"]
            async with client(server.url, store=tmp_path / "o") as again:
                got = [(await anext(again.messages())).payload for _ in range(2)]
            assert got == [b"1", b"2"]

    complete(run())


def test_an_inbox_that_is_full_stops_reading() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=Limits(inbox_messages=10)) as slow:
            await slow.subscribe("i")
            for number in range(1_000):
                server.deliver("i", b"%d" % number, 0)
            stream = slow.messages()
            assert [int((await anext(stream)).payload) for _ in range(1_000)] == list(range(1_000))

    complete(run())


def test_an_application_that_never_reads_can_still_publish() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=Limits(inbox_messages=5)) as one:
            await one.subscribe("i", qos=1)
            for number in range(20):
                server.deliver("i", b"%d" % number, 1)
            for _ in range(10):
                await (await one.publish("t")).acknowledged
            stream = one.messages()
            assert [int((await anext(stream)).payload) for _ in range(20)] == list(range(20))

    complete(run())


def test_requests_and_replies(gateway: SocketGateway) -> None:
    async def run() -> None:
        async with client(url_of(gateway), "asker") as asker, client(url_of(gateway), "answerer") as answerer:

            async def answer() -> None:
                async for message in answerer.messages():
                    if message.payload != b"silence":
                        assert message.response_topic == "@asker"
                        await answerer.reply(message, b"re: " + message.payload)

            await answerer.subscribe("questions", qos=1)
            answering = asyncio.create_task(answer())
            replies = await asyncio.gather(
                *(asker.request("questions", b"%d" % number, timeout_s=20) for number in range(5)),
                asker.request("@answerer", "direct", timeout_s=20),
            )
            assert [reply.payload for reply in replies] == [b"re: %d" % number for number in range(5)] + [b"re: direct"]
            with pytest.raises(NoReply, match="questions"):
                await asker.request("questions", b"silence", timeout_s=0.3)
            with pytest.raises(PublishRefused):
                await asker.request("$SYS/x", timeout_s=20)
            await asker.send("asker", b"to myself")
            message = await anext(asker.messages())
            assert message.payload == b"to myself"
            with pytest.raises(ClientError, match="no reply"):
                await asker.reply(message)
            answering.cancel()

    complete(run())


def test_too_many_requests_and_requests_without_properties() -> None:
    async def run() -> None:
        async with client(NOBODY, limits=Limits(requests=1)) as one:
            first = asyncio.create_task(one.request("t", timeout_s=0.2))
            await asyncio.sleep(0)
            with pytest.raises(TooManyRequests):
                await one.request("t", timeout_s=1)
            with pytest.raises(NoReply):
                await first
        async with client(NOBODY, mqtt_version="3.1.1") as old:
            with pytest.raises(LocalProtocolError, match=r"5\.0"):
                await old.request("t", timeout_s=1)
            with pytest.raises(LocalProtocolError, match="content_type"):
                await old.publish("t", content_type="x/y")

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


def test_presence_is_read_from_its_message() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url) as one:
            await one.subscribe_presence("alice")
            server.deliver(
                "$presence/alice", b'{"client":"alice","online":true,"attachments":1,"at_us":5,"reason":""}', 1
            )
            server.deliver("$presence/alice", b"", 1)
            server.deliver("elsewhere", b"{}", 1)
            stream = one.messages()
            presence = (await anext(stream)).presence
            assert presence is not None
            assert (presence.client, presence.online, presence.at_us, presence.reason) == ("alice", True, 5, "")
            assert [(await anext(stream)).presence for _ in range(2)] == [None, None]

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
        {"connect_points": ["http://h"]},
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


def test_it_is_closed_although_the_server_is_silent() -> None:
    async def run() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with client(f"mqtt://{HOST}:{port}") as one:
                await one.publish("t")
                await eventually(lambda: one._mqtt.connections == 1, "it connects")

    complete(run())
