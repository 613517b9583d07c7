"""Requests over HTTP in tests: an MQTT client that answers them, and what is left of them in the gateway."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.http.server import HttpServer
from gateway.shard.arrivals import REPLY_CLIENTS
from gateway.shard.home import Home
from tests.unit.gateway.http.http_harness import Answer, HttpHarness
from tests.unit.gateway.http.http_site import HttpSite
from tests.unit.gateway.shard.home_client import Client, Got
from tests.unit.gateway.shard.home_harness import HomeHarness


class Request(NamedTuple):
    """As it has come; `properties` by name."""

    topic: str
    payload: bytes
    properties: dict[str, Any]


class Responder(Client):
    """Calls `answer` with itself and each request. `requests` are those that have come."""

    def __init__(self, harness: HomeHarness, name: str, answer: Callable[["Responder", Request], object]) -> None:
        super().__init__(harness, name)
        self._answer_to = answer
        self.requests: list[Request] = []

    def take(self, got: Got, packet_id: int) -> None:
        super().take(got, packet_id)
        request = Request(got.topic, got.payload, self.properties[len(self.requests)])
        self.requests.append(request)
        self._answer_to(self, request)

    def reply(self, request: Request, payload: bytes, qos: int = 1, **properties: Any) -> None:
        """`properties` are those of the reply besides its Correlation Data, or instead of it."""
        found = {"correlation_data": request.properties["correlation_data"]} | properties
        self.publish(request.properties["response_topic"], payload, qos, properties=found)


def echo(responder: Responder, request: Request) -> None:
    responder.reply(request, b"echo " + request.payload)


def silent(responder: Responder, request: Request) -> None:
    """No reply."""


async def responding(
    harness: HomeHarness, answer: Callable[[Responder, Request], object] = echo, topic: str = "service", name: str = "r"
) -> Responder:
    """A responder that is connected and subscribed to `topic`."""
    responder = Responder(harness, name, answer)
    harness.clients.append(responder)
    await responder.connect()
    await responder.subscribe(topic)
    return responder


async def ask(harness: HttpHarness, target: str = "service", body: bytes = b"x", **headers: str) -> Answer:
    """Headers with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await harness.request("POST", f"/v1/requests/{target}", data=body, headers=named)


def reply_sessions(*homes: Home) -> list[str]:
    """Client ids of inboxes that wait for replies."""
    shards = [shard for home in homes for shard in home.shards.values()]
    return [name for shard in shards for name in shard.sessions if name.startswith(REPLY_CLIENTS)]


def is_idle(harness: HttpHarness) -> bool:
    """Whether nothing is left of any request."""
    return not reply_sessions(harness.home) and _is_idle(harness.http)


def is_site_idle(site: HttpSite) -> bool:
    """The same for all gateways of a site."""
    homes = [gateway.home for gateway in site.gateways if gateway.is_up]
    return not reply_sessions(*homes) and all(map(_is_idle, site.servers))


def _is_idle(server: HttpServer) -> bool:
    waiting = server._requests_handler.waiting
    return not len(waiting) and not waiting._of_client and not server._forwarding._waiting
