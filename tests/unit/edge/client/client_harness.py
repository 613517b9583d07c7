"""A client of the library for tests: connects quickly, or to nobody."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from edge.client.client import Client
from edge.reconnect import FullJitter
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway

QUICKLY = FullJitter(0.01, 0.02)
NOBODY = f"mqtt://{HOST}:1"


def client(url: str, name: str = "van-7", **more: Any) -> Client:
    return Client(client_id=name, connect_points=[url], backoff=QUICKLY, **more)


def url_of(gateway: SocketGateway) -> str:
    return f"mqtt://{HOST}:{gateway.mqtt_port}"


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 30))
