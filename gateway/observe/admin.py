"""The admin API: list, show and end sessions. JSON; every error is `{"error": "<a sentence>"}`.

| request | answer |
|---|---|
| `GET /admin/sessions?prefix=&state=&limit=&after=` | a page of the sessions of this gateway |
| `GET /admin/session?client=` | one session |
| `DELETE /admin/connection?client=` | its connection is ended with 0x98 |
| `DELETE /admin/session?client=` | the connection and the session are ended |

What is asked about one client is done by its home, also if that is another gateway
(:mod:`gateway.observe.site_sessions`).
The client id is in the query, because it may be any text. Requests that change something use DELETE: a web page cannot
send that to another origin without a preflight request. Requests about a cluster are in
:mod:`gateway.observe.cluster_admin`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.errors import HomeUnreachable, NotAdmitted
from gateway.host.home_calls import EPOCH
from gateway.host.host_server import HostServer
from gateway.observe.admin_http import BadRequest, answer, parameters, refusal
from gateway.observe.admission import AdminAccess
from gateway.observe.sessions import State, Wanted, page
from gateway.observe.site_sessions import CONNECTION, SESSION, SiteSessions
from gateway.shard.home import Home

_PAGE = 100
_PAGE_MOST = 1_000
_STATES: tuple[State, ...] = ("connected", "offline")

log = structlog.get_logger(__name__)


class AdminApi:
    """The handlers. Requests are answered only while `is_serving`."""

    def __init__(self, access: AdminAccess, home: Home, hosts: HostServer, is_serving: Callable[[], bool]) -> None:
        self._access = access
        self._home = home
        self._hosts = hosts
        self._site = SiteSessions(home, hosts)
        self._is_serving = is_serving
        for method, path, handler in (
            ("GET", SESSION, self._session),
            ("DELETE", SESSION, self._end),
            ("DELETE", CONNECTION, self._kick),
        ):
            hosts.member_requests[method, path] = partial(self._answer_member, handler)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/sessions", self._sessions),
            web.get(SESSION, self._session),
            web.delete(SESSION, self._end),
            web.delete(CONNECTION, self._kick),
        ]

    @web.middleware
    async def guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Checks access to `/admin/` and turns errors into sentences. Other paths are open to everyone."""
        if not request.path.startswith("/admin/"):
            served: web.StreamResponse = await handler(request)
            return served
        refused = self._access.check(request)
        if refused is not None:
            return refusal(refused.sentence, refused.status)
        return await self._answer(request, handler)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._is_serving():
            return refusal("the gateway is starting or being stopped; see /readyz", 503)
        try:
            return await handler(request)
        except BadRequest as error:
            return refusal(str(error), 400)
        except web.HTTPException as error:
            return refusal(error.reason, error.status)
        except NotAdmitted:
            return refusal("no gateway has the client's shard at the moment: ask again", 503)
        except HomeUnreachable as error:
            return refusal(str(error), 503)

    async def _answer_member(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """What another gateway asks, which has checked for whom. It is not passed on again. Without TLS anybody on this
        machine may pose as a gateway, so then the token is asked for, if there is one."""
        is_proven = request.transport is not None and request.transport.get_extra_info("ssl_object") is not None
        refused = self._access.check(request) if self._access.requires_token and not is_proven else None
        if refused is not None:
            return refusal(refused.sentence, refused.status)
        relays = self._hosts.relays
        epoch = None if relays is None else await relays.calls.moved(request.query.get("client", ""))
        if epoch is None:
            return await self._answer(request, handler)
        moved = refusal("this gateway does not have the client's shard", 503)
        moved.headers[EPOCH] = str(epoch)
        return moved

    async def _sessions(self, request: web.Request) -> web.Response:
        query = parameters(request, "prefix", "after", "state", "limit")
        state = _one_of(query.get("state", ""))
        wanted = Wanted(query.get("prefix", ""), query.get("after", ""), state, _limit(query.get("limit", "")))
        return answer(await page(self._home.states, wanted))

    async def _session(self, request: web.Request) -> web.Response:
        client = _client(request)
        found = await self._site.session(client, request.headers.get("Authorization", ""))
        return self._unknown(client) if found is None else answer(found)

    async def _kick(self, request: web.Request) -> web.Response:
        return await self._end_of(request, end_session=False)

    async def _end(self, request: web.Request) -> web.Response:
        return await self._end_of(request, end_session=True)

    async def _end_of(self, request: web.Request, *, end_session: bool) -> web.Response:
        client = _client(request)
        token = request.headers.get("Authorization", "")
        kicked = await self._site.kick(client, token, end_session=end_session)
        if kicked is None:
            return self._unknown(client)
        log.info("client kicked", client=client, session_ended=kicked["session_ended"], peer=request.remote)
        return answer(kicked)

    def _unknown(self, client: str) -> web.Response:
        has_none = "this gateway has no session" if self._hosts.relays is None else "no gateway has a session"
        return refusal(f"{has_none} of {client!r}", 404)


def _client(request: web.Request) -> str:
    client = parameters(request, "client").get("client", "")
    if not client:
        raise BadRequest("the parameter `client` is missing: ?client=<client id>")
    return client


def _one_of(text: str) -> State | None:
    for state in _STATES:
        if text == state:
            return state
    if text:
        raise BadRequest(f"state={text!r} is not allowed: {' or '.join(_STATES)}")
    return None


def _limit(text: str) -> int:
    if not text:
        return _PAGE
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _PAGE_MOST):
        raise BadRequest(f"limit={text[:20]!r} is not allowed: 1 to {_PAGE_MOST}")
    return int(text)
