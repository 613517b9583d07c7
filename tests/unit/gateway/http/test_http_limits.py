"""Limits of the HTTP bearer: each is enforced, answered where that is possible, and leaves the rest at work."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from tests.unit.gateway.http.http_harness import HttpHarness, run, until

POST = b"POST /v1/messages/a HTTP/1.1\r\nHost: localhost\r\n"


async def raw(harness: HttpHarness, data: bytes) -> bytes:
    """What the gateway answers to these bytes, up to its end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


def test_a_body_too_large_is_refused(tmp_path: Path) -> None:
    """packet_bytes: by its announced length before it is sent, and by what comes if it is chunked."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, packet_bytes=1024).start()
        assert (await harness.post("a", b"." * 1024)).status == 202
        answer = await harness.post("a", b"." * 1025)
        assert (answer.status, answer.reason) == (413, "packet_too_large")
        assert answer.json["title"] == "Content Too Large", "RFC 9110, 15.5.14"
        head = POST
        answered = await raw(harness, head + b"Content-Length: 1025\r\nExpect: 100-continue\r\n\r\n")
        assert answered.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
        answered = await raw(harness, head + b"Transfer-Encoding: chunked\r\n\r\n401\r\n" + b"." * 1025 + b"\r\n")
        assert answered.startswith(b"HTTP/1.1 413 ")
        assert len(await harness.stored()) == 1

    run(scenario())


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(tmp_path: Path) -> None:
    """RFC 9110, 10.1.1."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        head = POST + b"Connection: close\r\nContent-Length: 2\r\nExpect: "
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(head + b"100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert (await reader.read()).startswith(b"HTTP/1.1 202 ")
        writer.close()
        assert (await raw(harness, head + b"tea\r\n\r\nhi")).startswith(b"HTTP/1.1 417 ")
        assert await harness.stored() == [("a", b"hi")]

    run(scenario())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 3000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100 + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, data: bytes, status: int) -> None:
    """header_bytes, header_fields; with problem details, and the connection ends."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"header_bytes": 2048, "header_fields": 32}).start()
        answer = await raw(harness, data)
        assert answer.split(b" ")[:2] in ([b"HTTP/1.1", b"%d" % status], [b"HTTP/1.0", b"%d" % status])
        assert b"application/problem+json" in answer
        assert await harness.stored() == []
        assert harness.hosts.counts[f"http_{status}"] == 1

    run(scenario())


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", b""),
        (b"POST /v1/messages/a HT", b""),
        (POST + b"Content-Length: 9\r\n\r\nabc", b"HTTP/1.1 408 "),
        (POST + b"Content-Length: 1\r\n\r\n1GET", b"HTTP/1.1 202 "),
    ],
)
def test_a_client_that_is_too_slow_is_let_go(tmp_path: Path, data: bytes, answer: bytes) -> None:
    """read_timeout_s: for the head of the first request, and of a further one; for the body."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"read_timeout_s": 0.1}).start()
        assert (await raw(harness, data)).startswith(answer)
        await until(lambda: not harness.hosts.http_connections)

    run(scenario())


def test_a_head_that_comes_byte_by_byte_is_too_slow(tmp_path: Path) -> None:
    """Slowloris: bytes that come do not buy time."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"read_timeout_s": 0.3}).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        ended = asyncio.create_task(reader.read())
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            while not ended.done():
                writer.write(b"a")
                await asyncio.wait([ended], timeout=0.01)
        with contextlib.suppress(ConnectionError):
            assert await ended == b""
        writer.close()
        await until(lambda: not harness.hosts.http_connections)

    run(scenario())


def test_connections_requests_and_streams_are_limited(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"requests": 1, "streams": 1}, connections=4).start()
        harness.bus.held_acks = {harness.topics.ingress}
        posting = asyncio.create_task(harness.post("a"))
        await until(lambda: harness.bus.in_flight)
        answer = await harness.post("a")
        assert (answer.status, answer.reason) == (503, "too_many_requests_at_once")
        assert answer.headers["Retry-After"]
        async with harness.stream("?filter=b"):
            answer = await harness.request("GET", "/v1/stream?filter=b")
            assert (answer.status, answer.reason) == (503, "too_many_streams")
            _, third = await asyncio.open_connection("127.0.0.1", harness.port)
            await until(lambda: harness.hosts.http_connections == 4)
            assert await raw(harness, b"GET /openapi.json HTTP/1.1\r\n\r\n") == b"", "a connection too many"
            assert harness.hosts.counts["connections_refused"] == 1
            third.close()
        harness.bus.held_acks = set()
        harness.bus.release()
        assert (await posting).status == 202
        async with harness.stream("?filter=b"):
            await harness.post("b")

    run(scenario())


@pytest.mark.parametrize(
    ("method", "target", "status", "reason"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/stream/", 404, "not_found"),
        ("GET", "/v1/stream/../openapi.json", 404, "not_found"),
        ("POST", "/v1/messages", 404, "not_found"),
        ("POST", "/v1%2Fmessages/a", 404, "not_found"),
        ("GET", "//v1/stream", 404, "not_found"),
        ("GET", "/v1/messages/a", 405, "POST"),
        ("PUT", "/v1/messages/a", 405, "POST"),
        ("POST", "/v1/stream", 405, "GET"),
        ("DELETE", "/v1/stream/ack", 405, "POST"),
        ("OPTIONS", "/openapi.json", 405, "GET"),
        ("PUT", "/v1/message-presence/a", 405, "GET, POST"),
        ("POST", "/v1/connect?bearer=mqtt", 405, "GET"),
        ("GET", "/v1/connect/", 404, "not_found"),
    ],
)
def test_what_there_is_not(tmp_path: Path, method: str, target: str, status: int, reason: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        answer = await harness.request(method, target)
        assert answer.status == status
        if status == 405:
            assert answer.headers["Allow"] == reason
            assert answer.reason == "method_not_allowed"
        else:
            assert answer.reason == reason

    run(scenario())


def test_head_is_not_allowed_where_get_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        for target in ("/openapi.json", "/v1/stream"):
            answer = await harness.request("HEAD", target)
            assert (answer.status, answer.headers["Allow"], answer.body) == (405, "GET", b"")

    run(scenario())


def test_a_path_may_be_written_in_any_equivalent_form(tmp_path: Path) -> None:
    """RFC 9110, 4.2.3: %6D is m."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        assert (await harness.request("GET", "/%6Fpenapi.json")).status == 200
        assert (await harness.request("POST", "/v1/%6Dessages/a%2Fb", data=b"x")).status == 202
        assert await harness.stored() == [("a/b", b"x")]

    run(scenario())


def test_bodies_in_a_form_that_is_not_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        answer = await harness.post("a", headers={"Content-Encoding": "gzip"})
        assert (answer.status, answer.reason) == (415, "content_encoding")
        for body, content_type, status in (
            (b'{"last_event_id": "x"}', "text/plain", 415),
            (b'{"last_event_id": "x"}', "application/json", 400),
            (b'{"last_event_id": 1}', "application/json", 400),
            (b"\xff", "application/json", 400),
            (b"{}", "application/json", 400),
            (b" " * 1025, "application/json", 413),
        ):
            headers = {"Content-Type": content_type, "X-Client-Id": "c"}
            answer = await harness.request("POST", "/v1/stream/ack", data=body, headers=headers)
            assert (answer.status, bool(answer.reason)) == (status, True)

    run(scenario())


@pytest.mark.parametrize(
    ("version", "status"), [(b"1.1", 202), (b"1.0", 202), (b"0.9", 505), (b"2.0", 505), (b"1.2", 400), (b"3", 400)]
)
@pytest.mark.parametrize("expects", [b"", b"Expect: 100-continue\r\n"])
def test_versions_of_http(tmp_path: Path, version: bytes, status: int, expects: bytes) -> None:
    """1.0 is taken too: proxies speak it by default. It knows no 100 (RFC 9110, 10.1.1)."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        head = POST.replace(b"HTTP/1.1", b"HTTP/" + version) + b"Connection: close\r\n"
        answer = await raw(harness, head + expects + b"Content-Length: 2\r\n\r\nhi")
        if version == b"1.1" and expects:
            answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert answer.split(b" ")[1] == b"%d" % status, answer
        assert (b"application/problem+json" in answer) == (status != 202)
        assert await harness.stored() == ([("a", b"hi")] if status == 202 else [])

    run(scenario())


def test_a_stream_over_http_1_0(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(b"GET /v1/stream?filter=a HTTP/1.0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"chunked" not in head
        await reader.readuntil(b"\n\n")
        await harness.post("a", b"hello")
        assert b'"hello"' in await reader.readuntil(b"\n\n")
        others = harness.hosts.http_connections - 1
        writer.close()
        await until(lambda: harness.hosts.http_connections == others)

    run(scenario())


@pytest.mark.parametrize("n_requests", [1, 3])
@pytest.mark.parametrize("at_once", [True, False])
def test_who_sends_no_more_is_answered_all_the_same(tmp_path: Path, n_requests: int, at_once: bool) -> None:
    """A client that closes its side behind its requests gets each answer; then the connection ends."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_acks = {harness.topics.ingress}
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write((POST + b"Content-Length: 2\r\n\r\nhi") * n_requests)
        if not at_once:
            await until(lambda: harness.bus.in_flight > 0)
        writer.write_eof()
        await until(lambda: harness.bus.in_flight > 0)
        harness.bus.held_acks = set()
        harness.bus.release()
        assert (await reader.read()).count(b"HTTP/1.1 202 ") == n_requests
        assert await harness.stored() == [("a", b"hi")] * n_requests
        await until(lambda: not harness.hosts.http_connections)
        writer.close()

    run(scenario())


OPEN_STREAM = b"GET /v1/stream?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n"
OTHER_FORM = OPEN_STREAM.replace(b"/v1/", b"/%761/")


@pytest.mark.parametrize("begun", [b"", POST, POST + b"Content-Length: 3\r\n\r\nhi", OPEN_STREAM, OTHER_FORM])
def test_who_closes_within_a_request_is_let_go(tmp_path: Path, begun: bytes) -> None:
    """Nothing is stored; nor does a stream go on for a client that may have gone."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(begun)
        if b"stream" in begun:
            await reader.readuntil(b"\n\n")
        writer.write_eof()
        assert b" 202 " not in await reader.read()
        await until(lambda: not harness.hosts.http_connections)
        assert await harness.stored() == []
        writer.close()

    run(scenario())


async def unread(harness: HttpHarness, request: bytes, times: int) -> socket.socket:
    """A client that asks for more than the system holds and reads nothing of the answers."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", harness.port))
    sending = asyncio.create_task(loop.sock_sendall(client, request * times))
    await until(lambda: harness.hosts.http_connections)
    sending.add_done_callback(lambda task: task.cancelled() or task.exception())
    return client


def test_a_client_that_reads_no_answer_is_let_go(tmp_path: Path) -> None:
    """write_timeout_s: it must not take a place of limits.connections for ever (R9)."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"write_timeout_s": 0.2}).start()
        client = await unread(harness, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 2_000)
        await until(lambda: not harness.hosts.http_connections)
        client.close()

    run(scenario())


def test_a_stream_over_http_1_0_ends_with_its_connection(tmp_path: Path) -> None:
    """RFC 9112, 6.3: also if the client would keep the connection, because nothing else says where the stream ends."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        head = b"GET /v1/stream?wait=0.01 HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
        assert (await raw(harness, head)).endswith(b"retry: 1000\n\n: nothing new\n\n")

    run(scenario())
