"""Requests over HTTP that ask for all replies, as server-sent events (R6)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

from gateway.http.openapi import openapi
from schemas.identity import shard_of
from tests.unit.gateway.http.http_harness import HttpHarness, Stream, run, until
from tests.unit.gateway.http.http_site import HttpSite, client_of
from tests.unit.gateway.http.http_site import run as run_site
from tests.unit.gateway.http.responder import (
    Request,
    Responder,
    echo,
    is_idle,
    is_site_idle,
    responding,
    silent,
)
from tests.unit.gateway.shard.home_harness import SHARDS

C = client_of(1)
"""Its home is gateway 1."""
KEYED = {"X-Client-Id": C, "Idempotency-Key": "k"}


@asynccontextmanager
async def replies(of: HttpHarness, query: str = "timeout=300", **options: Any) -> AsyncIterator[Stream]:
    url = of.url(f"/v1/requests/service?replies=all&{query}")
    async with of.session.post(url, data=b"x", **options) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Request-Message-Id"] in of.published()
        yield Stream(response)


@asynccontextmanager
async def replies_at(site: HttpSite, gateway: int, **headers: str) -> AsyncIterator[Stream]:
    url = site.url(gateway, "/v1/requests/service?replies=all&timeout=300")
    async with site.session.post(url, data=b"x", headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Stream(response)


def test_every_reply_until_the_time_is_over(tmp_path: Path) -> None:
    """R6, fanout request: from several responders, and several from one; the last event says how many."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()

        def answer(responder: Responder, request: Request) -> None:
            for qos in (0, 1, 2):
                responder.reply(request, b"%d of %b" % (qos, responder.name.encode()), qos)

        for name in ("a", "b"):
            await responding(harness, answer, name=name)
        async with replies(harness, "timeout=1") as stream:
            found = await stream.rest()
        assert {event.kind for event in found[:-1]} == {"message"}
        assert sorted(event.data["payload"] for event in found[:-1]) == sorted(
            f"{qos} of {name}" for qos in (0, 1, 2) for name in ("a", "b")
        )
        assert [event.data["qos"] for event in found[:-1] if event.data["payload"].endswith("a")] == [0, 1, 2]
        assert not any(event.id for event in found), "nothing comes again"
        assert (found[-1].kind, found[-1].data) == ("end", {"reason": "timeout", "replies": 6})
        assert is_idle(harness)

    run(scenario())


def test_most_ends_the_stream(tmp_path: Path) -> None:
    """What is one too many is not written, and is no delivery in the ledger."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()

        def answer(responder: Responder, request: Request) -> None:
            for number in range(5):
                responder.reply(request, b"%d" % number)

        responder = await responding(harness, answer)
        async with replies(harness, "most=3&timeout=300") as stream:
            found = await stream.rest()
        assert [event.data["payload"] for event in found[:-1]] == ["0", "1", "2"]
        assert found[-1].data == {"reason": "most", "replies": 3}
        await until(lambda: is_idle(harness))
        inbox = responder.requests[0].properties["response_topic"][1:]
        await until(lambda: harness.outcomes(inbox).count("delivered") == 3)
        await until(lambda: harness.ids_of(b"3") | harness.ids_of(b"4") <= harness.completed())
        assert harness.outcomes(inbox).count("delivered") == 3

    run(scenario())


def test_no_replies_at_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"heartbeat_s": 0.05}).start()
        async with replies(harness, "timeout=1") as stream:
            found = await stream.rest()
        assert [event.data for event in found] == [{"reason": "timeout", "replies": 0}]
        assert stream.comments[0] == "the request is sent"
        assert "nothing new" in stream.comments

    run(scenario())


def test_events_are_as_they_are_described(tmp_path: Path) -> None:
    """A reply that is too large is announced, and does not count."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"reply_bytes": 1000}).start()
        schemas = openapi(harness.settings().gateway)["components"]["schemas"]

        def answer(responder: Responder, request: Request) -> None:
            responder.reply(request, b"." * 1001)
            responder.reply(request, b"\xff", content_type="a/b", user_property=[("a", "\r\nb")])

        await responding(harness, answer)
        async with replies(harness, "most=1&timeout=300") as stream:
            found = await stream.rest()
        assert [event.kind for event in found] == ["dropped", "message", "end"]
        for event, name in zip(found, ("DroppedReply", "Event", "EndOfReplies"), strict=True):
            jsonschema_rs.validator_for(schemas[name], validate_formats=True).validate(event.data)
        assert found[0].data["bytes"] > 1001
        assert found[0].data["id"] in harness.ids_of(b"." * 1001)
        assert found[1].data["properties"]["user_properties"] == [["a", "\r\nb"]]

    run(scenario())


def test_a_slow_requester_slows_down_only_its_own_replies(tmp_path: Path) -> None:
    """R9: what waits for it stays in the session, and it gets all in order; another request is served meanwhile."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"stream_window": 8}, write_buffer_bytes=65_536).start()
        number, size = 200, 50_000

        def answer(responder: Responder, request: Request) -> None:
            for n in range(number if request.payload == b"x" else 1):
                responder.reply(request, b"%04d" % n + b"." * size)

        await responding(harness, answer)
        async with replies(harness, f"most={number}&timeout=300") as stream:
            links = harness.http._requests_handler._exchange._links
            await until(lambda: links and max(link._waiting_bytes for link in links) >= 65_536)
            other = await harness.request("POST", "/v1/requests/service", data=b"y")
            assert other.status == 200
            assert max(link._waiting_bytes for link in links) < 65_536 + 8 * (size + 1000)
            found = [event.data["payload"][:4] for event in (await stream.events(number))]
        assert found == [f"{n:04}" for n in range(number)]

    run(scenario())


def test_a_requester_that_leaves_frees_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        async with replies(harness) as stream:
            await until(lambda: responder.requests)
            echo(responder, responder.requests[0])
            assert await stream.payloads(1) == ["echo x"]
        await until(lambda: is_idle(harness))

    run(scenario())


def test_a_requester_that_does_not_read_loses_its_request(tmp_path: Path) -> None:
    """write_timeout_s"""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"write_timeout_s": 0.3}).start()

        def answer(responder: Responder, request: Request) -> None:
            for _ in range(30):
                responder.reply(request, b"." * 900_000)

        await responding(harness, answer)
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port, limit=1024)
        writer.write(b"POST /v1/requests/service?replies=all&timeout=300 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: is_idle(harness))
        writer.transport.abort()

    run(scenario())


def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, echo)
        async with replies(harness) as stream:
            await until(lambda: responder.requests)
            assert await stream.payloads(1) == ["echo x"]
            await harness.http.stop()
            assert [event.data for event in await stream.rest()] == [{"reason": "server_shutting_down", "replies": 1}]

    run(scenario())


@pytest.mark.parametrize("headers", [{}, KEYED])
@pytest.mark.parametrize("gateway", [0, 1])
def test_any_gateway_streams_replies(tmp_path: Path, gateway: int, headers: dict[str, str]) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path, {"heartbeat_s": 0.05}).start()
        responder = await responding(site, silent)
        async with replies_at(site, gateway, **headers) as stream:
            await until(lambda: responder.requests)
            for number in range(3):
                responder.reply(responder.requests[0], b"%d\n\n" % number)
                assert await stream.payloads(1) == [f"{number}\n\n"]
            assert await stream.comment()
        await until(lambda: is_site_idle(site))

    run_site(scenario())


def test_a_refused_request_is_no_stream(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for gateway in (0, 1):
            found = await site.ask(gateway, "POST", "/v1/requests/$presence/a?replies=all", headers=KEYED)
            assert (found.status, found.reason) == (400, "topic_name_invalid")

    run_site(scenario())


@pytest.mark.parametrize("loss", ["move", "kill", "stop home", "stop asked"])
def test_a_stream_of_replies_ends_with_its_gateways(tmp_path: Path, loss: str) -> None:
    """The last event says why; asking again with the key gets later replies, and sends nothing."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        name = next(name for name in (f"r{n}" for n in range(99)) if shard_of(name, SHARDS) == 0)
        responder = await responding(site, silent, name=name)
        async with replies_at(site, 0, **KEYED) as stream:
            await until(lambda: responder.requests)
            echo(responder, responder.requests[0])
            assert await stream.payloads(1) == ["echo x"]
            match loss:
                case "move":
                    await site.move(1, 0)
                case "kill":
                    await site.take_over(1, 0)
                case "stop home":
                    await site.servers[1].stop()
                case _:
                    await site.servers[0].stop()
            [end] = await stream.rest()
        assert end.kind == "end"
        assert end.data["reason"] == ("server_shutting_down" if "stop" in loss else "server_moved")
        if "stop" not in loss:
            async with replies_at(site, 0, **KEYED) as stream:
                responder.reply(responder.requests[0], b"later")
                assert await stream.payloads(1) == ["later"]
        assert len(responder.requests) == 1
        await until(lambda: is_site_idle(site))

    run_site(scenario())


def test_http_1_0(tmp_path: Path) -> None:
    """Without chunks: the stream ends with the connection."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await responding(harness, echo)
        async with aiohttp.ClientSession(version=aiohttp.HttpVersion10) as session:
            for query in ("", "?replies=all&most=1"):
                async with session.post(harness.url(f"/v1/requests/service{query}"), data=b"x") as response:
                    body = await response.read()
                    assert response.status == 200
                    assert "Transfer-Encoding" not in response.headers
                if not query:
                    assert body == b"echo x"
                    continue
                lines = [line for line in body.splitlines() if line.startswith(b"data: ")]
                assert json.loads(lines[0][6:])["payload"] == "echo x"
                assert json.loads(lines[1][6:]) == {"reason": "most", "replies": 1}

    run(scenario())
