"""Receipts as an application sees them (Q13)."""

import asyncio

import msgspec
import pytest

from edge.client.errors import ClientError, NotReceived
from edge.client.message import Receipt
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client, complete, url_of
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.gateway.host.socket_gateway import SocketGateway


def test_a_request_that_nobody_has_got_fails_at_once() -> None:
    """Q13: the platform says so; another receipt, which the application has asked for, is no reply."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url, "asker") as asker:
            await asker.connected()
            asking = asyncio.create_task(asker.request("questions", b"?", timeout_s=60))
            await eventually(lambda: bool(server.session.stored), "the request")
            asked = server.session.stored[-1].properties or {}
            assert asked["user_property"] == [("receipt", "failed")]
            about = {"message_id": "1", "recipients": 0, "read": 0, "complete": True}
            for kind, outcomes in (("completed", {}), ("failed", {"expired": 1})):
                content = {**about, "receipt": kind, "outcomes": outcomes}
                properties = {
                    "correlation_data": asked["correlation_data"],
                    "user_property": [("waystation-receipt", kind)],
                }
                server.deliver("@asker", msgspec.json.encode(content), 1, properties)
            with pytest.raises(NotReceived, match="expired: 1"):
                await asking
            other = await anext(asker.messages())
            assert other.receipt == Receipt("1", "completed", 0, 0, True, {})

    complete(run())


def test_all_replies_to_a_request(gateway: SocketGateway) -> None:
    """R6: until the time is over, as long as nobody says how many have got it."""

    async def run() -> None:
        async with client(url_of(gateway), "asker") as asker, client(url_of(gateway), "answerer") as answerer:

            async def answer() -> None:
                async for message in answerer.messages():
                    for number in range(3):
                        await answerer.reply(message, b"%d" % number)

            await answerer.subscribe("questions", qos=1)
            answering = asyncio.create_task(answer())
            replies = asker.request_all("questions", b"?", timeout_s=60)
            assert [(await anext(replies)).payload for _ in range(3)] == [b"0", b"1", b"2"]
            await replies.aclose()
            async for reply in asker.request_all("questions", b"?", timeout_s=60):
                assert reply.payload == b"0"
                break
            assert [reply async for reply in asker.request_all("@nobody", timeout_s=0.2)] == []
            await asker.send("asker", b"to myself")
            assert (await anext(asker.messages())).payload == b"to myself", "late replies are none of its messages"
            answering.cancel()

    complete(run())


@pytest.mark.parametrize("receipt_first", [False, True])
def test_replies_end_with_the_last_receiver(receipt_first: bool) -> None:
    """R6, Q13: the platform says how many have got the request."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url, "asker") as asker:
            await asker.connected()
            found: list[bytes] = []

            async def ask() -> None:
                async for reply in asker.request_all("questions", b"?", timeout_s=60):
                    found.append(reply.payload)

            asking = asyncio.create_task(ask())
            await eventually(lambda: bool(server.session.stored), "the request")
            asked = server.session.stored[-1].properties or {}
            assert asked["user_property"] == [("receipt", "completed")]
            server.deliver("@asker", b"1", 1, {"correlation_data": asked["correlation_data"]})
            if not receipt_first:
                server.deliver("@asker", b"2", 1, {"correlation_data": asked["correlation_data"]})
            content = Receipt("1", "completed", 2, 0, True, {"delivered": 2, "expired": 1})
            properties = {
                "correlation_data": asked["correlation_data"],
                "user_property": [("waystation-receipt", "completed")],
            }
            server.deliver("@asker", msgspec.json.encode(content), 1, properties)
            if receipt_first:
                await eventually(lambda: found == [b"1"], "the first reply")
                assert not asking.done()
                server.deliver("@asker", b"2", 1, {"correlation_data": asked["correlation_data"]})
            await asking
            assert found == [b"1", b"2"]

    complete(run())


def test_a_reader_says_that_it_has_read_a_message() -> None:
    """Q13: if its sender wants to hear that."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url, "reader") as reader:
            await reader.connected()
            ids = {"user_property": [("message-id", "forged"), ("receipt", "read"), ("message-id", "7")]}
            server.deliver("@reader", b"1", 1, ids)
            server.deliver("@reader", b"2", 1)
            message, other = await anext(reader.messages()), await anext(reader.messages())
            await (await reader.tell_read(message)).acknowledged
            assert server.session.stored[-1].topic == "$read/7"
            assert message.receipt is None
            with pytest.raises(ClientError, match="asks for no receipt"):
                await reader.tell_read(other)

    complete(run())
