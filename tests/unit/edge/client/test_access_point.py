"""Asking an access point: what it answers, and everything that may answer in its place (G1, G3)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client.access_point import ANSWER_BYTES_MAX, AccessPoint, ask, parse_answer
from edge.client.client import Client
from edge.client.connect_points import ConnectPoint, NoConnectPoints, decode_answer, parse_connect_points
from edge.client.errors import NotReachable
from edge.client.limits import Limits
from edge.client.options import Options
from edge.reconnect import FullJitter
from tests.unit.edge.client.server_host import HOST, ServerHost

POINT = {"protocol": "mqtt", "address": "127.0.0.1", "port": 1883}


def http_answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def listing(*points: Any) -> bytes:
    return json.dumps({"connect_points": points}).encode()


@contextlib.asynccontextmanager
async def access_point(answer: bytes | None, requests: list[bytes] | None = None) -> AsyncIterator[str]:
    """Gives `answer` to every request; None: nothing, for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            if requests is not None:
                requests.append(request)
            if answer is not None:
                writer.write(answer)
            else:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, HOST, 0) as server:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"


def answered(answer: bytes | None, timeout_s: float = 20.0) -> list[ConnectPoint]:
    async def run() -> list[ConnectPoint]:
        async with access_point(answer) as url:
            return await ask(AccessPoint.parse(url), "mqtt", "van-7", None, timeout_s)

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_the_points_in_order_each_once() -> None:
    other = POINT | {"address": "gateway-2", "port": 1884, "weight": 5}
    tls = POINT | {"protocol": "mqtts"}
    points = answered(http_answer(listing(other, POINT, tls, other)))
    assert points == [ConnectPoint("mqtt", "gateway-2", 1884), ConnectPoint("mqtt", "127.0.0.1", 1883)]


def test_a_body_in_chunks() -> None:
    body = listing(POINT)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert len(answered(chunked)) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http_answer(b"<!DOCTYPE html><title>Welcome, please log in</title>"), "login page"),
        (http_answer(b"", "302 Found", "Location: http://portal/"), "redirect"),
        (http_answer(b'{"error":"draining"}', "503 Service Unavailable"), "503.*draining"),
        (http_answer(b'{"error":"no"}', "429 Too Many Requests"), "429"),
        (http_answer(b"", "404 Not Found"), "404"),
        (http_answer(b"nonsense"), "no list of connect points"),
        (http_answer(listing()), "no gateway"),
        (http_answer(listing(POINT | {"protocol": "ws"})), "no gateway"),
        (http_answer(listing(*[POINT] * 101)), "100"),
        (http_answer(listing(POINT | {"port": 0})), "port"),
        (http_answer(listing(POINT | {"port": True})), "port"),
        (http_answer(listing(POINT | {"port": "1883"})), "port"),
        (http_answer(listing(POINT | {"address": "a b\r\n"})), "address"),
        (http_answer(listing(POINT | {"address": "x" * 300})), "address"),
        (http_answer(listing(POINT | {"address": "a:b"})), "address"),
        (http_answer(listing(POINT | {"address": "[::1]"})), "address"),
        (http_answer(listing(POINT | {"address": "::1%"})), "address"),
        (http_answer(b"[" * 60_000), "no list"),
        (http_answer(b"x" * (ANSWER_BYTES_MAX + 1)), "64 KiB"),
        (http_answer(listing(POINT))[:-5], "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP"),
        (b"", "HTTP"),
    ],
)
def test_whatever_else_answers_is_an_attempt_that_failed(answer: bytes, reason: str) -> None:
    with pytest.raises(NoConnectPoints, match=reason):
        answered(answer)


def test_a_black_hole_and_nobody() -> None:
    with pytest.raises(NoConnectPoints, match="within"):
        answered(None, 0.2)
    with pytest.raises(NoConnectPoints, match="cannot be reached"):
        asyncio.run(ask(AccessPoint.parse("http://127.0.0.1:1"), "mqtt", "c", None, 20))


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_raise_anything_else(noise: bytes, is_body: bool) -> None:
    answer = http_answer(noise) if is_body else noise
    with pytest.raises(NoConnectPoints) as error:
        parse_answer(answer, "mqtt")
    assert "\n" not in str(error.value)


WORDS = st.sampled_from(["connect_points", "protocol", "address", "port", "mqtt"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner), max_leaves=12)


@given(JSON)
def test_no_json_raises_anything_else(value: Any) -> None:
    with contextlib.suppress(NoConnectPoints):
        assert decode_answer(json.dumps(value).encode(), "mqtt")


@given(st.text("0aZ._:%-", min_size=1, max_size=9) | st.sampled_from(["::1", "fe80::1%eth0", "1::2:3", "10.0.0.7"]))
def test_a_gateway_that_an_answer_names_has_a_url(address: str) -> None:
    """The uplink asks it under that URL: an answer must not end the agent."""
    body = json.dumps({"connect_points": [{"protocol": "https", "address": address, "port": 443}]}).encode()
    with contextlib.suppress(NoConnectPoints):
        [point] = decode_answer(body, "https")
        assert AccessPoint.parse(str(point)).port == 443


def test_the_request_and_its_escapes() -> None:
    where = AccessPoint.parse("https://[::1]/base/")
    request = where.request("wss", "van 7/ü&x=1\r\n")
    assert request.startswith(b"GET /base/v1/connect?bearer=wss&client=van%207%2F%C3%BC%26x%3D1%0D%0A HTTP/1.1\r\n")
    assert b"Host: [::1]:443\r\n" in request
    assert str(where) == "https://[::1]:443/base"


@pytest.mark.parametrize(
    "url", ["ftp://h", "h:80", "http://", "http://h:0x1", "http://u:p@h", "http://h/?a", "http://ü"]
)
def test_what_is_no_access_point(url: str) -> None:
    with pytest.raises(ValueError):
        AccessPoint.parse(url)


def test_connect_points_of_the_application() -> None:
    urls = ["mqtt://a", "mqtts://b", "ws://c:8083", "wss://[::1]/x", "mqtt://a:1883"]
    assert [str(point) for point in parse_connect_points(urls)] == [
        "mqtt://a:1883", "mqtts://b:8883", "ws://c:8083/mqtt", "wss://[::1]:443/x",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="too many"):
        parse_connect_points([f"mqtt://h:{port}" for port in range(1, 102)])


def test_a_client_finds_its_gateway_behind_black_holes_and_portals() -> None:
    """Each is one attempt of the round; the error of a round names them all."""

    async def run() -> None:
        requests: list[bytes] = []
        portal_page = http_answer(b"<html>log in</html>")
        async with ServerHost() as server, access_point(None) as hole, access_point(portal_page) as portal:
            points = http_answer(listing(POINT | {"port": 1}, POINT | {"port": server.port}))
            limits = Limits(connect_timeout_s=0.5)
            backoff = FullJitter(0.01, 0.02)
            async with (
                access_point(points, requests) as good,
                Client(client_id="van-7", access_points=[hole, portal, good], limits=limits, backoff=backoff) as client,
            ):
                await client.connected()
                server.drop()
                await (await client.publish("t")).acknowledged
            assert len(requests) == server.connections == 2, "after a loss the access point is asked again (G14)"
            assert requests[0].startswith(b"GET /v1/connect?bearer=mqtt&client=van-7 HTTP/1.1\r\n")
            async with Client(
                client_id="van-8", access_points=[hole, portal], limits=limits, backoff=backoff
            ) as client:
                with pytest.raises(NotReachable, match="login page") as error:
                    await client.connected()
                assert [attempt.target for attempt in error.value.attempts] == [hole, portal]

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("url", "options", "authorization"),
    [
        (
            "https://access.example.org",
            {"username": "v", "password": b"p:\xc3\xa4", "bearer": "mqtts"},
            "Basic djpwOsOk",
        ),
        ("http://127.0.0.1:8080", {"username": "v", "password": b"p", "bearer": "mqtts"}, "Basic djpw"),
        ("http://[::1]:8080", {"password": b"a.b-c", "bearer": "wss"}, "Bearer a.b-c"),
        ("http://access.example.org", {"username": "v", "password": b"p", "bearer": "mqtts"}, None),
        ("http://access.example.org", {"username": "v", "password": b"p", "bearer": "mqtt"}, "Basic djpw"),
        ("https://access.example.org", {"password": b"a\r\nHost: b"}, None),
        ("https://access.example.org", {"username": "a:b", "password": b"p"}, None),
        ("https://access.example.org", {"username": "v"}, None),
    ],
)
def test_credentials_go_where_nobody_else_reads_them(url: str, options: Any, authorization: str | None) -> None:
    """RFC 7617, RFC 6750; unless the bearer shows them anyway."""
    client = Options(client_id="van-7", access_points=[url], **options)
    where = AccessPoint.parse(url)
    assert client.authorization(where) == authorization
    request = where.request("mqtt", "van-7", client.authorization(where)).decode()
    assert request.count("\r\n") == (6 if authorization else 5)
    assert (f"Authorization: {authorization}\r\n" in request) is (authorization is not None)
