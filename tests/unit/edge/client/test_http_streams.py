"""Streams of the HTTP bearer while connections come and go: only that of the present one is read (G13)."""

import asyncio
from typing import Any

import pytest

from edge.client import http_bearer
from edge.client.bearer_client import BearerHooks
from edge.client.connect_points import parse_connect_points
from edge.client.http_answers import Answer
from edge.client.http_bearer import HttpBearer
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.options import Options
from edge.client.outbox import Outbox
from edge.errors import AnswerFault
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import complete

URL = "http://gateway:8080"
OPEN = Answer(200, "text/event-stream", "", "http:van-7", b"")


class Stream:
    """A stream on which nothing arrives."""

    answer = OPEN

    def __init__(self) -> None:
        self.is_read = self.is_closed = False

    async def receive(self, timeout_s: float | None) -> bytes:
        self.is_read = True
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        self.is_closed = True


class Connections:
    """In the place of HttpConnection: the test answers each request for a stream."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[str, asyncio.Future[Stream]]] = asyncio.Queue()

    def __call__(self, *_: Any, **__: Any) -> "Connections":
        connection = Connections()
        connection.requests = self.requests
        return connection

    async def open_stream(self, target: str, last_event_id: str | None, timeout_s: float) -> Stream:
        answer: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((target, answer))
        return await answer

    async def post(self, target: str, fields: Any, body: bytes) -> Answer:
        return await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """A request whose answer is on its way may still get it: TLS reads while it closes."""


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_stream_of_a_connection_that_has_ended_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """`subscribe` opens a stream; its connection ends, another one begins, and only then the old one answers or
    fails. The new connection goes on, and gets the subscription."""
    connections = Connections()
    monkeypatch.setattr(http_bearer, "HttpConnection", connections)

    async def run() -> None:
        options, limits = Options("van-7", connect_points=[URL]), Limits()
        outbox = Outbox(lambda: MemoryStore("van-7"), limits, lambda: 0.0, lambda: 0.0, lambda _: None, lambda _: None)
        hooks = BearerHooks(lambda: None, lambda _: None, lambda: None, lambda: None, lambda _: None)
        bearer = HttpBearer(options, limits, outbox, await outbox.open(), hooks)

        async def connect() -> Stream:
            connecting, stream = asyncio.create_task(bearer.connect(parse_connect_points([URL])[0])), Stream()
            (await connections.requests.get())[1].set_result(stream)
            await connecting
            await eventually(lambda: stream.is_read, "the stream is read")
            return stream

        await connect()
        subscribing = asyncio.create_task(bearer.subscribe("news"))
        _, late = await connections.requests.get()
        bearer.abort()
        second, stale = await connect(), Stream()
        if is_answered:
            late.set_result(stale)
        else:
            late.set_exception(AnswerFault("no answer within 10 s"))
        target, answer = await connections.requests.get()
        assert bearer.is_connected
        assert bearer.connections == 2
        assert not stale.is_read
        assert stale.is_closed is is_answered
        assert "news" in target
        third = Stream()
        answer.set_result(third)
        assert await subscribing == [1]
        await eventually(lambda: third.is_read, "the stream with the subscription is read")
        assert second.is_closed
        await bearer.disconnect(ends_session=False)
        await outbox.close()

    complete(run())
