"""A server that closes during the TLS handshake: the system has no words for it, but whoever asked gets a reason."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edge.client.access_point import AccessPoint, ask
from edge.client.connect_points import NoConnectPoints
from edge.enrol.errors import GatewayNotReached
from edge.enrol.gateway_post import GatewayPost
from edge.uplink.errors import NotReachable
from edge.uplink.gateway_api import GatewayApi
from edge.uplink.http_transport import HttpTransport

WAYS: dict[str, tuple[Callable[[str], Awaitable[Any]], type[Exception]]] = {
    "access point": (lambda url: ask(AccessPoint.parse(url), "mqtt", "van-7", None, 20), NoConnectPoints),
    "enrolment": (lambda url: GatewayPost(url, None, 20)("/v1/enrolments", b"{}"), GatewayNotReached),
    "uplink": (lambda url: GatewayApi(HttpTransport(AccessPoint.parse(url))).probe(), NotReachable),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_error_says_why(name: str) -> None:
    way, kind = WAYS[name]

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def scenario() -> str:
        async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
            with pytest.raises(kind) as caught:
                await way(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        return str(caught.value)

    said, _, reason = asyncio.run(scenario()).partition("cannot be reached: ")
    assert reason, said
