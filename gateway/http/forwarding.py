"""Sends requests on to the gateway that has the client's home, and its answers back (G8, G11, G14).

A relay, and no redirect: many clients leave out credentials or body when they follow a redirect to another origin, and
`EventSource` follows one only as far as CORS lets it. So curl, `fetch` and `EventSource` need to know nothing.

What is sent on belongs to a session, or to the memory of a shard: publishes and requests with a key, streams,
acknowledgements. The
client has been admitted here by then, its request is known to be well-formed, and its body is complete. So a slow
client costs the home nothing, and a request can be sent again to the next owner. The home checks the same credentials
once more (:mod:`gateway.host.home_calls`), and its limits count.

A stream ends with its home, as it ends with a gateway that stops: the client comes back with `Last-Event-ID`.
"""

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, NamedTuple, cast
from urllib.parse import quote, unquote

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from gateway.errors import HomeUnreachable
from gateway.host.home_calls import CERTIFICATE, EPOCH, PEER, HomeAnswer, HomeCalls, HomeRequest
from gateway.host.host_server import HostServer
from gateway.http.connection import HttpConnection
from gateway.http.identity import Origin
from gateway.http.posted_message import KEY
from gateway.http.problems import AGAIN, Problem, bad_request
from gateway.http.responses import unbounded_response
from gateway.http.stream_events import end_event
from mqtt.codes import ReasonCode
from schemas.http_settings import HttpSettings

ANSWER_BYTES: Final = 65_536
"""The most that the answer to one client's own request has; a stream has no end."""

_SLACK_S: Final = 2.0
"""How much longer than the home itself this gateway waits for it."""

_OF_CONNECTION: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("content-length", "date", "expect", "host", "origin", "server", "x-forwarded-for"),
        *(PEER.lower(), CERTIFICATE.lower(), EPOCH.lower()),
    )
)
"""Headers of one connection (RFC 9110, 7.6.1), and what this gateway has dealt with or says itself."""


def is_from_member(request: web.BaseRequest) -> bool:
    """Whether another gateway has sent it on."""
    return cast(HttpConnection, request.protocol).is_member


def forwarded_origin(headers: CIMultiDictProxy[str]) -> Origin:
    """Where a request comes from that another gateway has sent on."""
    certificate = headers.get(CERTIFICATE)
    return Origin(headers.get(PEER, ""), None if certificate is None else unquote(certificate))


class SentRequest(NamedTuple):
    """A request that waits for replies, as it is sent to the home of `client`. It may be sent again, to the next home:
    so it has a key, its own or one that this gateway has made. A reply has at most `reply_bytes`."""

    client: str
    body: bytes
    key: str
    timeout_s: float
    reply_bytes: int
    wants_all: bool


class Forwarding:
    """Of one gateway."""

    def __init__(self, hosts: HostServer, settings: HttpSettings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._open: set[HomeAnswer] = set()
        self._waiting: set[asyncio.Timeout] = set()
        self._is_stopping = False
        self.streams = 0
        """Streams that are asked for here and served by other gateways."""

    async def _calls(self, request: web.BaseRequest, client: str) -> HomeCalls | None:
        """By which the client's home is asked; None if it is here. Raises Problem 503 if another gateway has sent the
        request on already: it is not sent on again."""
        relays = self._hosts.relays
        if relays is None or relays.calls.is_here(client):
            return None
        if not is_from_member(request):
            return relays.calls
        epoch = await relays.calls.moved(client)
        if epoch is not None:
            raise Moved(epoch)
        return None

    async def answer(self, request: web.BaseRequest, origin: Origin, client: str, body: bytes) -> web.Response | None:
        """The home's answer to the client's request; None if the home is here. Raises Problem 503."""
        calls = await self._calls(request, client)
        if calls is None:
            return None
        answer = await self._call(calls, request, origin, client, body)
        if answer is None:
            return None
        try:
            return await _whole(answer, ANSWER_BYTES)
        except HomeUnreachable as error:
            raise _unreachable(error) from error

    async def reply(
        self, request: web.BaseRequest, origin: Origin, sent: SentRequest, headers: dict[str, str]
    ) -> web.StreamResponse | None:
        """The home's answer to a request that waits for replies, a stream with `headers` besides; None if the home is
        here. Raises Problem 503, also when this gateway stops: then the home learns that nobody waits any more."""
        calls = await self._calls(request, sent.client)
        if calls is None:
            return None
        asked = self._request(request, origin, sent.body)
        with_key = CIMultiDict(asked.headers)
        with_key[KEY] = sent.key
        asked = asked._replace(headers=with_key, within_s=sent.timeout_s + asked.within_s)
        try:
            async with asyncio.timeout(None) as limit:
                self._waiting.add(limit)
                answer = await calls.call(sent.client, asked)
                if answer is None:
                    return None
                if answer.status == HTTPStatus.NOT_FOUND:  # a request is not answered so
                    answer.close()
                    detail = "the gateway that has this client's home is of an earlier release; nothing was sent"
                    raise Problem(503, "home_outdated", detail)
                if not sent.wants_all or answer.status != HTTPStatus.OK:
                    return await _whole(answer, max(sent.reply_bytes, ANSWER_BYTES))
        except HomeUnreachable as error:
            raise Problem(503, "home_unreachable", f"{error}; the request may have been sent; {AGAIN}") from error
        except TimeoutError as error:
            raise Problem(503, "server_shutting_down", f"the gateway is being stopped; {AGAIN}") from error
        finally:
            self._waiting.discard(limit)
        return await self._pass_on(answer, request, headers)

    async def part(
        self, request: web.BaseRequest, origin: Origin, client: str, body: bytes, most: int
    ) -> tuple[int, bytes] | None:
        """Sends `body`, a part of the request's, to the home of `client`, who need not be the caller. Status and body
        of the answer, at most `most` bytes; None if the home is here. Raises HomeUnreachable, Problem 503."""
        calls = await self._calls(request, client)
        if calls is None:
            return None
        answer = await calls.call(client, self._request(request, origin, body))
        if answer is None:
            return None
        try:
            return answer.status, await answer.read(most, self._settings.kafka_timeout_s)
        finally:
            answer.close()

    async def stream(
        self, request: web.BaseRequest, origin: Origin, client: str, headers: dict[str, str]
    ) -> web.StreamResponse | None:
        """Passes on a stream of the home, with `headers` besides, until either side ends it; None if the home is here.
        Raises Problem 503 before the first byte."""
        calls = await self._calls(request, client)
        if calls is None:
            return None
        self.streams += 1
        try:
            answer = await self._call(calls, request, origin, client, b"")
            return None if answer is None else await self._pass_on(answer, request, headers)
        finally:
            self.streams -= 1

    def stop(self) -> None:
        """Ends all streams, and all that wait for replies."""
        self._is_stopping = True
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(0.0)
        for answer in self._open:
            answer.end()

    async def _pass_on(
        self, answer: HomeAnswer, request: web.BaseRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        self._open.add(answer)
        try:
            response = unbounded_response(request, {**_passed_on(answer.headers), **headers}, answer.status)
            await response.prepare(request)
            await self._copy(answer, request, response)
        finally:
            self._open.discard(answer)
            answer.close()
        return response

    async def _copy(self, answer: HomeAnswer, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Ends with an event that says why, if the home does not. In the middle of an event the connection is broken:
        whoever reads drops what is incomplete."""
        last = b""
        try:
            try:
                async with aclosing(answer.chunks(2 * self._settings.heartbeat_s + _SLACK_S)) as chunks:
                    async for chunk in chunks:
                        last = (last + chunk)[-2:]
                        await self._write(response, chunk)
            except HomeUnreachable:
                if last != b"\n\n":
                    _abort(request)
                    return
                reason = ReasonCode.SERVER_SHUTTING_DOWN if self._is_stopping else ReasonCode.SERVER_MOVED
                await self._write(response, end_event(reason.name.lower()))
        except TimeoutError:  # the client does not read: unsent data would keep the connection open
            _abort(request)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._settings.write_timeout_s):
            await response.write(data)

    async def _call(
        self, calls: HomeCalls, request: web.BaseRequest, origin: Origin, client: str, body: bytes
    ) -> HomeAnswer | None:
        try:
            return await calls.call(client, self._request(request, origin, body))
        except HomeUnreachable as error:
            raise _unreachable(error) from error

    def _request(self, request: web.BaseRequest, origin: Origin, body: bytes) -> HomeRequest:
        headers = _passed_on(request.headers)
        headers[PEER] = origin.peer
        if origin.certificate is not None:
            headers[CERTIFICATE] = quote(origin.certificate, safe="")
        target = request.rel_url.raw_path_qs
        return HomeRequest(request.method, target, headers, body, self._settings.kafka_timeout_s + _SLACK_S)


class Moved(Problem):
    """The answer to another gateway: this one has lost the client's shard, as of `epoch`."""

    def __init__(self, epoch: int) -> None:
        super().__init__(
            503, "use_another_server", "another gateway has the client's shard", headers={EPOCH: str(epoch)}
        )


async def _whole(answer: HomeAnswer, most: int) -> web.Response:
    """An answer with a body of at most `most` bytes. Raises HomeUnreachable."""
    try:
        body = await answer.read(most, _SLACK_S)
        return web.Response(status=answer.status, body=body, headers=_passed_on(answer.headers))
    finally:
        answer.close()


def _unreachable(error: HomeUnreachable) -> Problem:
    return Problem(503, "home_unreachable", f"{error}; it may have done what was asked: it is safe to ask again")


def _passed_on(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Without what belongs to one connection. Raises Problem 400 for a value that is not UTF-8."""
    nominated = {name.strip().lower() for line in headers.getall("Connection", []) for name in line.split(",")}
    found = CIMultiDict[str]()
    for name, value in headers.items():
        if name.lower() in _OF_CONNECTION or name.lower() in nominated:
            continue
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise bad_request("malformed_header", f"the header {name} is not UTF-8") from error
        found.add(name, value)
    return found


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
