"""Requests to other gateways: to members only, over kept connections; a home may answer anything (G14, R11)."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from gateway.errors import HomeUnreachable
from gateway.host import relay_header
from gateway.host.home_calls import PEER, TRIES, HomeAnswer, HomeCalls, HomeRequest
from gateway.host.homes import HomeElsewhere
from gateway.host.member_tls import MemberTls
from gateway.host.proxy_protocol import missing
from gateway.host.relay_header import RelayedClient
from jobs.runtime.certificates import make
from schemas.settings import process_settings
from tests.unit.gateway.http.http_harness import PATIENCE_S
from tests.unit.gateway.http.http_site import HOST, HttpSite, client_of
from tests.unit.gateway.http.http_site import run as run_site

C = client_of(1)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASKED = HomeRequest("POST", "/v1/messages/a%2Fb?x=%20", {PEER: "192.0.2.1:7"}, b"body", PATIENCE_S)


class ScriptedHome:
    """Answers each request with the next of `answers`; an empty one ends the connection."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections: list[RelayedClient] = []
        self.port = 0
        self._server: asyncio.Server

    async def __aenter__(self) -> "ScriptedHome":
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = b""
        while more := missing(header):
            header += await reader.readexactly(more)
        self.connections.append(relay_header.decode(header))
        try:
            while self.answers:
                self.requests.append(await reader.readuntil(b"body"))
                answer = self.answers.pop(0)
                if not answer:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        writer.close()


class ScriptedHomes:
    """Owners one after the other; `asked` are the epochs that were waited for."""

    def __init__(self, *owners: ScriptedHome | None) -> None:
        self._owners = list(owners)
        self.asked: list[int] = []

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        owner, epoch = self._owners[0], len(self.asked) + 1
        return None if owner is None else HomeElsewhere(f"home{id(owner)}", HOST, owner.port, 0, epoch)

    def epoch(self, client: str) -> int:
        return len(self.asked) + 1

    def is_here(self, client: str) -> bool:
        return False

    def is_owner(self, home: HomeElsewhere) -> bool:
        return True

    def reference(self, client: str, bearer: str) -> str | None:
        return None

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        self.asked.append(epoch)
        if len(self._owners) > 1:
            self._owners.pop(0)
        return self.elsewhere(client)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On the loop that gateways have."""
    uvloop.run(scenario())


def calls_to(*owners: ScriptedHome | None) -> tuple[HomeCalls, ScriptedHomes]:
    homes = ScriptedHomes(*owners)
    return HomeCalls(homes, None, PATIENCE_S, Counter()), homes


async def body_of(answer: HomeAnswer | None) -> bytes:
    assert answer is not None
    try:
        return await answer.read(1_000, PATIENCE_S)
    finally:
        answer.close()


def test_requests_go_as_they_are_over_a_kept_connection() -> None:
    async def scenario() -> None:
        async with ScriptedHome(OK, OK, OK) as home:
            calls, _ = calls_to(home)
            for _ in range(3):
                assert await body_of(await calls.call("c", ASKED)) == b"ok"
            [connection] = home.connections
            assert connection == RelayedClient("", relay_header.HTTP, False, None)
            lines = home.requests[0].split(b"\r\n")
            assert lines[0] == b"POST /v1/messages/a%2Fb?x=%20 HTTP/1.1"
            assert sorted(lines[1:-2]) == [b"Content-Length: 4", b"Host: home", b"Waystation-Peer: 192.0.2.1:7"]
            await calls.stop()

    run(scenario)


def test_nobody_else_has_the_client() -> None:
    async def scenario() -> None:
        calls, homes = calls_to(None)
        assert await calls.call("c", ASKED) is None
        assert homes.asked == [0]

    run(scenario)


def test_the_owner_of_a_later_epoch_is_asked() -> None:
    """What a home answers that has lost the shard names the epoch; without a number the next one is meant."""

    async def scenario() -> None:
        moved = b"HTTP/1.1 503 Busy\r\nWaystation-Epoch: %b\r\nContent-Length: 0\r\n\r\n"
        for named, waited_for in ((b"7", 7), (b"-1", 2), ("²".encode(), 2), (b"9" * 99, 2)):
            async with ScriptedHome(moved % named) as former, ScriptedHome(OK) as home:
                calls, homes = calls_to(former, home)
                assert await body_of(await calls.call("c", ASKED)) == b"ok"
                assert homes.asked == [waited_for]
                await calls.stop()

    run(scenario)


def test_a_connection_that_is_closed_is_tried_again_at_once() -> None:
    """It may have been an old one; then the owner is the same."""

    async def scenario() -> None:
        async with ScriptedHome(b"", OK) as home:
            calls, homes = calls_to(home)
            assert await body_of(await calls.call("c", ASKED)) == b"ok"
            assert homes.asked == [1]
            await calls.stop()

    run(scenario)


@pytest.mark.parametrize("answer", [b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 99_999])
def test_a_home_that_answers_with_nonsense_is_asked_a_few_times(answer: bytes) -> None:
    async def scenario() -> None:
        async with ScriptedHome(*[answer] * 9) as home:
            calls, homes = calls_to(home)
            with pytest.raises(HomeUnreachable):
                await calls.call("c", ASKED)
            assert len(home.requests) == TRIES
            assert homes.asked == [1, 3, 4]
            await calls.stop()

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"." * 2000,
    ],
    ids=["cut off", "cut off between chunks", "no chunk", "too large"],
)
def test_an_answer_that_is_not_whole_is_none(answer: bytes) -> None:
    async def scenario() -> None:
        async with ScriptedHome(answer) as home:
            calls, _ = calls_to(home)
            with pytest.raises(HomeUnreachable):
                await body_of(await calls.call("c", ASKED))
            await calls.stop()

    run(scenario)


def test_a_home_that_says_nothing_is_not_waited_for_longer_than_asked() -> None:
    async def scenario() -> None:
        async with ScriptedHome(OK) as home:
            calls, _ = calls_to(home)
            with pytest.raises(HomeUnreachable):
                await calls.call("c", ASKED._replace(body=b"", within_s=0.05))
            assert not calls._waiting
            await calls.stop()

    run(scenario)


# -- with TLS, gateways on both sides ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("members")
    make(directory, [HOST], [], 1, lambda _: None, gateways=["0", "1", "2"])
    return directory


def member_tls(certificates: Path, name: str) -> MemberTls:
    settings = process_settings({}).gateway
    cluster = msgspec.structs.replace(
        settings.cluster,
        members_certificate=f"{certificates}/{name}.crt",
        members_key=f"{certificates}/{name}.key",
        members_ca=f"{certificates}/ca.crt",
    )
    return MemberTls(msgspec.structs.replace(settings, name=name, cluster=cluster))


def test_members_trust_one_another_by_their_certificates(tmp_path: Path, certificates: Path) -> None:
    """R11. Nothing is sent to a gateway that has another name than the owner's."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path, tls=[member_tls(certificates, name) for name in "01"]).start()
        for gateway in (0, 1):
            assert (await site.keyed(gateway, C, "k")).status == 202
        assert site.stored() == [b"x"]
        async with site.stream(0, "?filter=a", X_Client_Id=C) as stream:
            assert (await site.ask(1, "POST", "/v1/messages/a", data=b"y")).status == 202
            assert await stream.payloads(1) == ["y"]

    async def posing() -> None:
        site = await HttpSite(tmp_path / "posing", tls=[member_tls(certificates, name) for name in "02"]).start()
        asked = asyncio.create_task(site.keyed(0, C, "k"))
        while site.count(0, "home_calls_failed") < 1:
            await asyncio.sleep(0.005)
        site.epochs[1] = 9
        assert (await asked).reason == "home_unreachable"
        assert not site.count(1, "http_202")
        assert not site.stored()

    run_site(scenario())
    (tmp_path / "posing").mkdir()
    run_site(posing())


async def answered_to(port: int, tls: ssl.SSLContext) -> bytes:
    """What a gateway answers on its listener for members to a request; nothing if it does not take the connection."""
    writer = None
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname="")
        writer.write(relay_header.encode(RelayedClient("", relay_header.HTTP, False, None)))
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return await reader.read()
    except (ssl.SSLError, ConnectionError):  # by TLS 1.3 the refusal comes behind the handshake
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)


def test_only_members_can_send_requests_on(tmp_path: Path, certificates: Path) -> None:
    """R11: who has no certificate of a gateway cannot say who its peer is."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path, tls=[member_tls(certificates, name) for name in "01"]).start()
        stranger = ssl.create_default_context(cafile=certificates / "ca.crt")
        stranger.check_hostname = False
        member = member_tls(certificates, "0").client
        port = site.member(1, 1).port
        assert (await answered_to(port, member)).startswith(b"HTTP/1.1 200 ")
        assert await answered_to(port, stranger) == b""

    run_site(scenario())
