"""Requests over HTTP through any gateway of a site, also when homes move and gateways are lost (R6, G11, G14)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.identity import shard_of
from tests.unit.gateway.http.http_harness import Answer, until
from tests.unit.gateway.http.http_site import HttpSite, client_of, run
from tests.unit.gateway.http.responder import (
    Request,
    Responder,
    echo,
    is_site_idle,
    reply_sessions,
    responding,
    silent,
)
from tests.unit.gateway.shard.home_harness import SHARDS

C = client_of(1)
"""Its home is gateway 1."""
RESPONDER = next(name for name in (f"r{n}" for n in range(99)) if shard_of(name, SHARDS) == 0)
"""Its home is gateway 0."""
KEYED = {"X-Client-Id": C, "Idempotency-Key": "k"}


async def ask(site: HttpSite, gateway: int, target: str = "service", body: bytes = b"x", **options: Any) -> Answer:
    return await site.ask(gateway, "POST", f"/v1/requests/{target}", data=body, **options)


@pytest.mark.parametrize("headers", [{}, {"X-Client-Id": C}, KEYED])
@pytest.mark.parametrize("gateway", [0, 1])
def test_any_gateway_takes_a_request(tmp_path: Path, gateway: int, headers: dict[str, str]) -> None:
    """R6: only one with a key needs the client's home. A long reply passes byte for byte, with its headers."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        content = b"\x00\xff\n\n" * 60_000

        def answer(responder: Responder, request: Request) -> None:
            responder.reply(request, content, content_type="image/x", user_property=[("a", "b"), ("a", "c")])

        await responding(site, answer)
        url = site.url(gateway, "/v1/requests/service")
        async with site.session.post(url, data=b"x", headers=headers) as found:
            assert (found.status, await found.read()) == (200, content)
            assert found.headers["Content-Type"] == "image/x"
            assert found.headers.getall("User-Property") == ["a=b", "a=c"]
            assert found.headers["Request-Message-Id"] in site.published()
        await until(lambda: is_site_idle(site))
        assert site.count(gateway, "home_calls") == (gateway == 0 and headers == KEYED)

    run(scenario())


def test_a_key_holds_at_every_gateway(tmp_path: Path) -> None:
    """Q1: sent once; the repeated request gets the reply that comes from then on."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        responder = await responding(site, silent)
        assert (await ask(site, 1, "service?timeout=1", headers=KEYED)).reason == "no_reply"
        again = asyncio.create_task(ask(site, 0, headers=KEYED))
        await until(lambda: reply_sessions(site.gateways[1].home))
        echo(responder, responder.requests[0])
        found = await again
        assert (found.status, found.body, found.headers["Idempotency-Replayed"]) == (200, b"echo x", "true")
        assert (await ask(site, 0, body=b"y", headers=KEYED)).reason == "idempotency_key_reused"
        assert (await ask(site, 0, "service?timeout=1", headers=KEYED)).reason == "no_reply"
        assert len(responder.requests) == 1
        assert is_site_idle(site)

    run(scenario())


@pytest.mark.parametrize("gateway", [0, 1])
def test_the_home_moves_while_a_request_waits(tmp_path: Path, gateway: int) -> None:
    """503, and asking again with the key gets the reply; the request was sent once."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        responder = await responding(site, silent, name=RESPONDER)
        waiting = asyncio.create_task(ask(site, gateway, headers=KEYED))
        await until(lambda: responder.requests)
        await site.move(1, 0)
        found = await waiting
        if found.status == 503:
            assert (found.reason, found.headers["Retry-After"]) == ("server_moved", "1")
            waiting = asyncio.create_task(ask(site, gateway, headers=KEYED))
        await until(lambda: reply_sessions(site.gateways[0].home))
        echo(responder, responder.requests[0])
        found = await waiting
        assert (found.status, found.body, found.headers["Idempotency-Replayed"]) == (200, b"echo x", "true")
        assert len(responder.requests) == 1
        await until(lambda: is_site_idle(site))

    run(scenario())


def test_the_home_is_killed_while_a_request_waits(tmp_path: Path) -> None:
    """G3: the gateway that was asked asks the next home, which does not send the request again."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        responder = await responding(site, silent, name=RESPONDER)
        waiting = asyncio.create_task(ask(site, 0, headers=KEYED))
        await until(lambda: responder.requests)
        await site.take_over(1, 0)
        await until(lambda: reply_sessions(site.gateways[0].home))
        echo(responder, responder.requests[0])
        found = await waiting
        assert (found.status, found.body, found.headers["Idempotency-Replayed"]) == (200, b"echo x", "true")
        assert len(responder.requests) == 1
        await until(lambda: is_site_idle(site))

    run(scenario())


@pytest.mark.parametrize("headers", [{}, {"X-Client-Id": C}, KEYED])
def test_a_gateway_without_a_shard(tmp_path: Path, headers: dict[str, str]) -> None:
    """It sends every request on, once, whether its client has a name or not."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        await site.move(0, 1)
        assert not site.gateways[0].home.shards
        responder = await responding(site, echo)
        for _ in range(2):
            found = await ask(site, 0, "service?timeout=1", headers=headers)
        assert len(responder.requests) == (1 if headers == KEYED else 2)
        assert found.status == (504 if headers == KEYED else 200)
        await until(lambda: is_site_idle(site))

    run(scenario())


def test_a_nameless_client_has_no_key_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for gateway in (0, 1):
            assert (await ask(site, gateway, headers={"Idempotency-Key": "k"})).reason == "nameless_client"

    run(scenario())


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_gateway_stops_while_a_request_waits(tmp_path: Path, stopped: int) -> None:
    """Whichever of the two it is, the requester is told at once, and nothing is left."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        responder = await responding(site, silent)
        waiting = asyncio.create_task(ask(site, 0, headers=KEYED))
        await until(lambda: responder.requests)
        await site.servers[stopped].stop()
        found = await waiting
        assert (found.status, found.reason) == (503, "server_shutting_down")
        assert found.headers["Retry-After"] == "1"
        await until(lambda: is_site_idle(site))

    run(scenario())


def test_the_home_learns_that_the_requester_has_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        responder = await responding(site, silent)
        waiting = asyncio.create_task(ask(site, 0, "service?timeout=300", headers=KEYED))
        await until(lambda: responder.requests)
        assert reply_sessions(site.gateways[1].home)
        waiting.cancel()
        await until(lambda: is_site_idle(site))

    run(scenario())


def test_a_shard_that_nobody_has(tmp_path: Path) -> None:
    """503 for what needs it; a request without a key goes on."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        await responding(site, echo, name=RESPONDER)
        site.gateways[1].home.shards.pop(1)
        site.homes[0].believed = {1: None}
        site.homes[0].wait_s = 0
        found = await ask(site, 0, headers=KEYED)
        assert (found.status, found.reason) == (503, "use_another_server")
        assert (await ask(site, 0, headers={"X-Client-Id": C})).body == b"echo x"
        assert is_site_idle(site)

    run(scenario())


@pytest.mark.parametrize("gateway", [0, 1])
def test_the_limits_hold_at_both_gateways(tmp_path: Path, gateway: int) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"waiting_requests_per_client": 1}).start()
        responder = await responding(site, silent)
        waiting = asyncio.create_task(ask(site, 0, headers=KEYED))
        await until(lambda: responder.requests)
        found = await ask(site, gateway, headers={"X-Client-Id": C})
        assert (found.status, found.reason) == (429, "too_many_requests_of_client")
        echo(responder, responder.requests[0])
        assert (await waiting).status == 200

    run(scenario())


def test_a_home_of_an_earlier_release(tmp_path: Path) -> None:
    """It does not know the path: 503, as long as not all gateways are of this release."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        await responding(site, echo, name=RESPONDER)
        site.servers[1].routes = web.UrlDispatcher()
        found = await ask(site, 0, headers=KEYED)
        assert (found.status, found.reason) == (503, "home_outdated")
        assert (await ask(site, 0, headers={"X-Client-Id": C})).status == 200
        assert is_site_idle(site)

    run(scenario())
