"""HTTP requests to the homes of clients at other gateways: for what a client asks over HTTP, and for operators (G14).

They go to the listener for members, as relayed connections do (:mod:`gateway.host.relay`): so the home's HTTP listener
may be off or behind a proxy, both sides have shown that they are members, and no further port is needed. A connection
begins with a PROXY header whose bearer is HTTP; then it is kept, and has one request after the other, of any client.
Each request has the client's own credentials, which the home checks as it always does. What it cannot see, because the
client is connected here, comes in two headers, which a gateway believes on such connections only:

| header | content |
|---|---|
| `Waystation-Peer` | the client's address and port |
| `Waystation-Certificate` | the common name of its verified certificate, percent-encoded; missing without one |

A home that has lost the client's shard answers with the epoch that it knows, in `Waystation-Epoch`; then the owner of
that epoch is asked. So is the next owner if a home does not answer. Therefore only **requests that may be repeated**
may be sent this way. A request that another gateway has sent is never sent on.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import structlog
from multidict import CIMultiDictProxy, MultiMapping
from yarl import URL

from gateway.errors import HomeUnreachable
from gateway.host import relay_header
from gateway.host.homes import HomeElsewhere, Homes
from gateway.host.relay_header import HTTP, RelayedClient
from gateway.host.tls import common_name

if TYPE_CHECKING:
    from gateway.host.member_tls import MemberTls

PEER: Final = "Waystation-Peer"
CERTIFICATE: Final = "Waystation-Certificate"
EPOCH: Final = "Waystation-Epoch"
TRIES: Final = 3
"""One with the owner as known, two with owners that come after it."""

_HEADER: Final = relay_header.encode(RelayedClient("", HTTP, False, None))
_LINE_BYTES: Final = 65_536
_FAULTS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""ValueError: the member's address is none."""


log = structlog.get_logger(__name__)


class HomeRequest(NamedTuple):
    """`target`: path and query as they go over the wire. The home has `within_s` seconds to begin its answer, whoever
    it is in the end."""

    method: str
    target: str
    headers: MultiMapping[str] | Mapping[str, str]
    body: bytes
    within_s: float


class HomeAnswer:
    """An answer that has begun. Close it."""

    def __init__(self, response: aiohttp.ClientResponse, where: HomeElsewhere, closed: Callable[[], object]) -> None:
        self._response, self._closed = response, closed
        self.where = where

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self._response.headers

    async def read(self, most: int, within_s: float) -> bytes:
        """The body. Raises HomeUnreachable, also if it has more than `most` bytes."""
        body = bytearray()
        try:
            async with asyncio.timeout(within_s):
                async for chunk in self._response.content.iter_any():
                    body += chunk
                    if len(body) > most:
                        raise HomeUnreachable(f"{self.where.gateway} answers with more than {most} bytes")
        except _FAULTS as error:
            raise _lost(self.where, error) from error
        return bytes(body)

    async def chunks(self, silent_s: float) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises HomeUnreachable, also if nothing comes for `silent_s` seconds, or another
        gateway owns the shard by now."""
        content = self._response.content
        while True:
            try:
                async with asyncio.timeout(silent_s):
                    chunk = await content.readany()
            except _FAULTS as error:
                raise _lost(self.where, error) from error
            if not chunk:
                return
            yield chunk

    def end(self) -> None:
        """What is not read yet is lost."""
        self._response.close()

    def close(self) -> None:
        """The connection is kept if the answer was read to its end."""
        self._closed()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class HomeCalls:
    """Of one gateway. `tls`: how it proves to other members who it is; None without TLS. A connection has to be there
    within `connect_s`."""

    def __init__(self, homes: Homes, tls: "MemberTls | None", connect_s: float, counts: Counter[str]) -> None:
        self._homes, self._tls, self._connect_s, self._counts = homes, tls, connect_s, counts
        self._sessions: dict[str, tuple[HomeElsewhere, aiohttp.ClientSession]] = {}
        self._waiting: dict[asyncio.Timeout, HomeElsewhere] = {}
        self._answers: set[HomeAnswer] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def is_here(self, client: str) -> bool:
        """As :meth:`Homes.is_here`."""
        return self._homes.is_here(client)

    def gateway_of(self, client: str) -> str | None:
        """The other gateway that has the client's home; None if it is here, or nobody is known to have it."""
        where = self._homes.elsewhere(client)
        return None if where is None else where.gateway

    async def moved(self, client: str) -> int | None:
        """The epoch to name to a gateway that has taken this one for the client's home; None if it is, perhaps after a
        while: its home may be starting."""
        if not self._homes.is_here(client):
            await self._homes.newer(client, 0)
        return None if self._homes.is_here(client) else self._homes.epoch(client)

    async def call(self, client: str, request: HomeRequest) -> HomeAnswer | None:
        """The answer of the client's home, which is not here; None if it has come here meanwhile, or nobody has it in
        time. Raises HomeUnreachable if nobody answers who has it: the request may have been carried out."""
        try:
            async with asyncio.timeout(request.within_s):
                where = self._homes.elsewhere(client) or await self._homes.newer(client, 0)
                for number in range(TRIES):
                    if where is None:
                        return None
                    if not where.port or self._is_stopped:
                        break
                    answer = await self._try(where, request, is_first=number == 0)
                    if isinstance(answer, HomeAnswer):
                        return answer
                    where = await self._homes.newer(client, answer)
        except TimeoutError:
            pass
        self._counts["home_calls_refused"] += 1
        raise HomeUnreachable("the gateway that has this client does not answer")

    def owner_changed(self, shard: int) -> None:
        """The shard's lease has changed. If another gateway has it now, it is asked what its former home has not
        answered; streams end, and their clients come back."""
        for limit, where in self._waiting.items():
            if where.shard == shard and not self._homes.is_owner(where) and not limit.expired():
                limit.reschedule(0.0)
        for answer in list(self._answers):
            if answer.where.shard == shard and not self._homes.is_owner(answer.where):
                answer.end()

    async def stop(self) -> None:
        """Ends all connections, and makes no more."""
        self._is_stopped = True
        for answer in list(self._answers):
            answer.end()
        for _, session in self._sessions.values():
            self._close(session)
        self._sessions.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _try(self, where: HomeElsewhere, request: HomeRequest, *, is_first: bool) -> HomeAnswer | int:
        """The answer, or the epoch whose owner is to be asked next."""
        self._counts["home_calls"] += 1
        try:
            async with asyncio.timeout(None) as limit:
                self._waiting[limit] = where
                response = await self._session(where).request(
                    request.method,
                    URL(f"http://home{request.target}", encoded=True),
                    headers=request.headers,
                    data=request.body or None,
                    allow_redirects=False,
                )
        except _FAULTS as error:
            self._counts["home_calls_failed"] += 1
            log.debug("cannot ask a gateway", gateway=where.gateway, reason=str(error) or type(error).__name__)
            # A kept connection may be from before a restart of the gateway. Whoever takes over has a higher epoch.
            may_be_stale = is_first and not isinstance(error, TimeoutError)
            return where.epoch if may_be_stale else where.epoch + 1
        finally:
            self._waiting.pop(limit, None)
        known = response.headers.get(EPOCH)
        if known is not None:
            response.close()
            return int(known) if known.isascii() and known.isdigit() and len(known) < 20 else where.epoch + 1
        answer = HomeAnswer(response, where, lambda: self._answers.discard(answer))
        self._answers.add(answer)
        return answer

    def _session(self, where: HomeElsewhere) -> aiohttp.ClientSession:
        """What keeps the connections to a gateway, as long as it is at the same address."""
        known = self._sessions.get(where.gateway)
        if known is not None:
            if (known[0].address, known[0].port) == (where.address, where.port):
                return known[1]
            self._close(known[1])
        session = aiohttp.ClientSession(
            connector=_MemberConnector(where, self._tls, self._connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
        )
        self._sessions[where.gateway] = where, session
        return session

    def _close(self, session: aiohttp.ClientSession) -> None:
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _MemberConnector(aiohttp.BaseConnector):
    """Connects to one gateway, shows who this one is, and checks who that one is before it sends anything."""

    def __init__(self, where: HomeElsewhere, tls: "MemberTls | None", connect_s: float) -> None:
        super().__init__(limit=0)
        self._where, self._tls, self._connect_s = where, tls, connect_s

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: object, timeout: object
    ) -> aiohttp.client_proto.ResponseHandler:
        where, context = self._where, None if self._tls is None else self._tls.client
        async with asyncio.timeout(self._connect_s):
            transport, protocol = await self._loop.create_connection(
                self._factory,
                where.address,
                where.port,
                ssl=context,
                server_hostname=None if context is None else "",
            )
        if context is not None and common_name(transport.get_extra_info("peercert")) != where.gateway:
            transport.abort()
            raise ConnectionError(f"{where.address}:{where.port} has no certificate of {where.gateway}")
        transport.write(_HEADER)
        return protocol


def _lost(where: HomeElsewhere, error: Exception) -> HomeUnreachable:
    return HomeUnreachable(f"the answer of {where.gateway} ends early: {str(error) or type(error).__name__}")
