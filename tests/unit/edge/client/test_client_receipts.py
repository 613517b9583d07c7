"""Receipts as an application sees them (Q13)."""

import asyncio

import msgspec
import pytest

from edge.client.errors import ClientError, NotReceived
from edge.client.message import Receipt
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client, complete
from tests.unit.edge.client.server_host import ServerHost


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
