"""Messages for the application, requests and replies, presence (G13, R12)."""

import asyncio
from pathlib import Path

import pytest

from edge.client.errors import (
    ClientError,
    NoReply,
    TooManyRequests,
)
from edge.client.limits import Limits
from edge.errors import PublishRefused
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY, client, complete, url_of
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.gateway.host.socket_gateway import SocketGateway


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


def test_a_message_that_is_acknowledged_without_a_connection_is_never_given_again(tmp_path: Path) -> None:
    """The server has had no PUBREC, and sends it again to the next process."""

    async def run() -> None:
        async with ServerHost() as server:
            async with client(server.url, store=tmp_path / "o") as one:
                await one.subscribe("i", qos=2)
                for number in range(3):
                    server.deliver("i", b"%d" % number, 2)
                first, second = await one.take_message(), await one.take_message()
                server.is_closed = True
                server.drop()
                await eventually(lambda: not one.is_connected, "the connection is lost")
                first.acknowledge()
                second.acknowledge()
            server.is_closed = False
            async with client(server.url, store=tmp_path / "o") as again:
                assert (await again.take_message()).payload == b"2"

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


def test_a_connection_that_ends_before_a_lost_session_has_its_subscriptions_again() -> None:
    """The server has made a new session, so the connection after that resumes one without subscriptions."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url) as one:
            await one.subscribe("i")
            await one.subscribe("j")
            server.session.forget()
            server.drop_at.add(server.reads + 2)  # CONNECT is answered, SUBSCRIBE is not
            server.drop()
            await eventually(lambda: server.connections == 3, "the third connection")
            await one.subscribe("k")  # what was sent on that connection before has been read
            asked = [[wanted.filter for wanted in packet.filters] for packet in server.session.subscribes]
            assert asked == [["i"], ["j"], ["i", "j"], ["i", "j"], ["k"]]

    complete(run())


def test_many_subscriptions_are_asked_for_again_in_parts() -> None:
    """All of them in one packet may be more than the server accepts."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url) as one:
            names = [f"i/{number}" for number in range(250)]
            for start in range(0, len(names), 25):
                await one.subscribe(*names[start : start + 25])
            server.session.forget()
            server.session.subscribes.clear()
            server.drop()
            await eventually(lambda: len(server.session.subscribes) == 3, "three SUBSCRIBE packets")
            asked = [[wanted.filter for wanted in packet.filters] for packet in server.session.subscribes]
            assert [len(part) for part in asked] == [100, 100, 50]
            assert [name for part in asked for name in part] == names

    complete(run())


def test_a_subscription_that_is_not_granted_again_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The client is told by the log, as it is told of connections; it stays connected, with all its other ones."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url) as one:
            await one.subscribe("i")
            await one.subscribe("j")
            server.session.refuse_filters.add("i")
            server.session.forget()
            server.drop()
            await eventually(lambda: "NOT_AUTHORIZED" in caplog.text, "the refusal is logged")
            for connections in (2, 3):
                assert await one.subscribe("k") == [ReasonCode.GRANTED_QOS_1]  # waits while there is no connection
                assert server.connections == connections
                server.drop()
            asked = [[wanted.filter for wanted in packet.filters] for packet in server.session.subscribes]
            assert asked == [["i"], ["j"], ["i", "j"], ["k"], ["k"]]

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
