"""Requests to a gateway over real sockets, and everything that may answer in its place (M3, M7)."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from edge.client.access_point import AccessPoint
from edge.client.connect_points import ConnectPoint
from edge.uplink.assembly import client_name
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.gateway_api import GatewayApi, Limits, credentials
from edge.uplink.http_transport import HttpTransport, Source, Traffic
from harness.keys import Authority
from schemas.mesh_api import BundleResult, BundlesAnswer, BundlesRequest, MeshState, PresenceAnswer, ReportsAnswer
from tests import draw
from tests.unit.edge.given_up import MOMENTS, given_up

HOST = "127.0.0.1"
LIMITS = Limits(request_s=20, small_s=20, answer_bytes=100_000)
ONE = BundlesRequest([b"bundle"])
TAKEN = BundlesAnswer([BundleResult("taken", receipt=b"receipt")])
Serve = Callable[[bytes], bytes | None]


def http_answer(body: bytes, status: str = "200 OK", kind: str = "application/json", *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def problem(status: int, reason: str = "", detail: str = "", *fields: str) -> bytes:
    body = json.dumps({"status": status, "reason": reason, "detail": detail}).encode()
    return http_answer(body, f"{status} X", "application/problem+json", *fields)


@contextlib.asynccontextmanager
async def server(
    serve: Serve, log: list[bytes] | None = None, requests_each: int = 1
) -> AsyncIterator[tuple[AccessPoint, list[tuple[str, int]]]]:
    """Answers each request with what `serve` makes of it; None: hangs. A connection ends after so many requests. Also
    gives the clients' addresses, one for each connection."""
    peers: list[tuple[str, int]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            talks.add(task)
        peers.append(writer.get_extra_info("peername"))
        with contextlib.suppress(OSError, EOFError):
            for _ in range(requests_each):
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                if log is not None:
                    log.append(head + body)
                answer = serve(head + body)
                if answer is None:
                    await reader.read()
                    break
                writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    talks: set[asyncio.Task[None]] = set()
    async with await asyncio.start_server(talk, HOST, 0) as listener:
        yield AccessPoint.parse(f"http://{HOST}:{listener.sockets[0].getsockname()[1]}/base"), peers
        if talks:
            await asyncio.wait(talks)


async def asked(
    serve: Serve,
    request: Callable[[GatewayApi], Awaitable[object]],
    *,
    limits: Limits = LIMITS,
    log: list[bytes] | None = None,
) -> object:
    async with server(serve, log) as (base, _):
        api = GatewayApi(HttpTransport(base), credentials(base, "a", "ann", "secret"), limits)
        try:
            return await asyncio.wait_for(request(api), 30)
        finally:
            api.close()


def post(api: GatewayApi) -> Awaitable[object]:
    return api.post_bundles(ONE)


def test_requests_and_answers() -> None:
    """M7, M9, M11: the exchange of schemas/mesh_api.py."""
    answers = {
        b"POST /base/v1/bundles ": TAKEN,
        b"POST /base/v1/message-presence ": ReportsAnswer([]),
        b"POST /base/v1/message-presence/query ": PresenceAnswer({}, {"m": b"receipt"}),
        b"GET /base/v1/mesh ": MeshState([b"certificate"], b"list"),
        b"GET /base/v1/connect?bearer=http&client=%40a ": {
            "connect_points": [{"protocol": "http", "address": "h", "port": 8}]
        },
    }
    log: list[bytes] = []

    def serve(request: bytes) -> bytes:
        return http_answer(msgspec.json.encode(next(one for line, one in answers.items() if request.startswith(line))))

    async def everything(api: GatewayApi) -> list[object]:
        assert await api.probe() >= 0
        return [
            await api.post_bundles(ONE),
            await api.report([]),
            await api.query(["m"]),
            await api.mesh(),
            await api.connect_points("@a"),
        ]

    found = asyncio.run(asked(serve, everything, log=log))
    expected = list(answers.values())
    assert found == [*expected[:4], [ConnectPoint("http", "h", 8)]]
    assert all(b"\r\nX-Client-Id: a\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n" in request for request in log)
    assert msgspec.json.decode(log[1].partition(b"\r\n\r\n")[2], type=BundlesRequest) == ONE


LOGIN = b"<!DOCTYPE html><title>Please log in</title>"


@pytest.mark.parametrize(
    ("answer", "reason", "is_certain"),
    [
        (http_answer(LOGIN, kind="text/html"), "login page", True),
        (http_answer(LOGIN), "no BundlesAnswer", True),
        (http_answer(b"", "302 Found", "text/html", "Location: http://portal/"), "a redirect", True),
        (http_answer(b"", "511 Network Authentication Required"), "511", False),
        (http_answer(b"{}", "502 Bad Gateway"), "502, and is no gateway of ours", False),
        (http_answer(b'{"status": 503}', "502 Bad", "application/problem+json"), "no gateway of ours", False),
        (http_answer(b'{"results": []}'), "0 results for 1", True),
        (http_answer(b'{"results": [{"outcome": "maybe"}]}'), "no BundlesAnswer", True),
        (http_answer(b" " * 100_001), "larger than 100000 bytes", True),
        (http_answer(b"{}", "200 OK", "application/json", "Content-Encoding: gzip"), "encoded as gzip", True),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000, "not valid HTTP", True),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "not valid HTTP", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "larger", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n", "larger", True),
        (b"HTTP/1.1", "ended within the answer", False),
    ],
)
def test_what_is_no_gateway_is_not_reachable(answer: bytes, reason: str, is_certain: bool) -> None:
    """M3: never a delivery."""
    with pytest.raises(NotReachable, match=reason) as caught:
        asyncio.run(asked(lambda _: answer, post))
    assert caught.value.is_certain is is_certain


def test_an_answer_cut_at_any_byte_is_none() -> None:
    whole = http_answer(msgspec.json.encode(TAKEN), "200 OK", "application/json", "Connection: close")
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(msgspec.json.encode(TAKEN)), msgspec.json.encode(TAKEN))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + body
    to_the_end = head + b"\r\n" + msgspec.json.encode(TAKEN)

    async def cut(answer: bytes, at: int) -> None:
        with pytest.raises(NotReachable):
            await asked(lambda _: answer[:at], post)

    async def scenario() -> None:
        for answer in (whole, chunked, to_the_end):
            assert await asked(lambda _, whole=answer: whole, post) == TAKEN  # type: ignore[misc]
            for at in draw.some(range(len(answer)), 25, "cuts of an answer"):
                await cut(answer, at)

    asyncio.run(scenario())


def test_a_problem_carries_the_gateways_words() -> None:
    """RFC 9457."""
    with pytest.raises(GatewayProblem, match="the gateway answers 503, kafka_error: no broker") as caught:
        asyncio.run(asked(lambda _: problem(503, "kafka_error", "no\nbroker", "Retry-After: 7"), post))
    assert (caught.value.status, caught.value.retry_after_s) == (503, 7.0)
    with pytest.raises(GatewayProblem) as caught:
        asyncio.run(asked(lambda _: problem(429, "", "", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"), post))
    assert caught.value.retry_after_s == 0.0


def test_a_gateway_that_hangs_is_given_up() -> None:
    with pytest.raises(NotReachable, match=r"no complete answer within 0.2 s"):
        asyncio.run(asked(lambda _: None, post, limits=Limits(request_s=0.2)))


def test_a_refused_connection_is_certain() -> None:
    async def scenario() -> None:
        async with server(lambda _: None) as (base, _):
            pass
        await GatewayApi(HttpTransport(base)).probe()

    with pytest.raises(NotReachable, match="cannot be reached") as caught:
        asyncio.run(scenario())
    assert caught.value.is_certain


@contextlib.asynccontextmanager
async def tls_server(authority: Authority) -> AsyncIterator[AccessPoint]:
    """Answers one request of each connection."""
    signed = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"[]}")
            writer.write(http_answer(msgspec.json.encode(PresenceAnswer({}, {}))))
        writer.close()

    async with await asyncio.start_server(talk, HOST, 0, ssl=context) as listener:
        yield AccessPoint.parse(f"https://{HOST}:{listener.sockets[0].getsockname()[1]}")


def tls_api(base: AccessPoint, trusted: Authority) -> GatewayApi:
    return GatewayApi(HttpTransport(base, tls=ssl.create_default_context(cafile=str(trusted.file))), limits=LIMITS)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_only_a_trusted_certificate_is_a_gateways(tmp_path: Path, is_trusted: bool) -> None:
    """M3: a network may answer https with a certificate of its own."""
    authority = Authority(tmp_path, "right")
    trusted = authority if is_trusted else Authority(tmp_path, "wrong")

    async def scenario() -> None:
        async with tls_server(authority) as base:
            with contextlib.closing(tls_api(base, trusted)) as api:
                await api.probe()

    if is_trusted:
        asyncio.run(scenario())
        return
    with pytest.raises(NotReachable, match="certificate is not trusted") as caught:
        asyncio.run(scenario())
    assert caught.value.is_certain


def test_a_request_may_be_given_up_at_any_moment(tmp_path: Path) -> None:
    """M3: others can be made after it, with the descriptor that its connection had."""
    authority = Authority(tmp_path, "right")

    async def scenario(turns: int) -> None:
        async with tls_server(authority) as base:
            with contextlib.closing(tls_api(base, authority)) as api:
                await given_up(api.probe(), turns)
                await api.probe()

    for turns in range(MOMENTS):
        asyncio.run(scenario(turns))


def test_a_connection_is_kept_and_replaced_when_the_server_has_closed_it() -> None:
    async def scenario() -> None:
        answer = http_answer(msgspec.json.encode(PresenceAnswer({}, {})))
        traffic, log = Traffic(), list[bytes]()
        async with server(lambda _: answer, log, requests_each=2) as (base, peers):
            transport = HttpTransport(base, source=Source("127.0.0.3"), traffic=traffic)
            api = GatewayApi(transport)
            for _ in range(5):
                await api.probe()
            api.close()
        assert len(peers) == 3
        assert {host for host, _ in peers} == {"127.0.0.3"}, "M4: it is bound to the bearer's address"
        assert traffic.received == 5 * len(answer)
        assert traffic.sent >= sum(len(one) for one in log), "with what went into connections that were closed"

    asyncio.run(scenario())


def test_credentials_go_over_https_or_to_this_machine_only() -> None:
    far, near, safe = (AccessPoint.parse(url) for url in ("http://10.0.0.7", "http://127.0.0.1", "https://10.0.0.7"))
    assert credentials(far, "a", "ann", "secret") == (("X-Client-Id", "a"),)
    for base in (near, safe):
        assert credentials(base, "a", "", "token") == (("X-Client-Id", "a"), ("Authorization", "Bearer token"))
    assert credentials(safe, "") == ()
    for username, secret in (("a:b", "x"), ("", "two\r\nlines"), ("", "")):
        with pytest.raises(ValueError, match="HTTP carries only"):
            credentials(safe, "a", username, secret)
    assert client_name("van-7") == "van-7"
    assert client_name("a device") == client_name("ä") == ""
