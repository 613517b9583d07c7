"""The admin API: list, show and end sessions. JSON; every error is `{"error": "<a sentence>"}`.

| request | answer |
|---|---|
| `GET /admin/sessions?prefix=&state=&limit=&after=` | a page of sessions |
| `GET /admin/session?client=` | one session |
| `DELETE /admin/connection?client=` | its connection is ended with 0x98 |
| `DELETE /admin/session?client=` | the connection and the session are ended |

The client id is in the query, because it may be any text. Requests that change something use DELETE: a web page cannot
send that to another origin without a preflight request. Requests about a cluster are in
:mod:`gateway.observe.cluster_admin`.
"""

from collections.abc import Callable
from typing import Any

import structlog
from aiohttp import web

from gateway.observe.admin_http import BadRequest, answer, parameters, refusal
from gateway.observe.admission import AdminAccess
from gateway.observe.sessions import State, Wanted, detail, page
from gateway.shard.home import Home

_PAGE = 100
_PAGE_MOST = 1_000
_STATES: tuple[State, ...] = ("connected", "offline")

log = structlog.get_logger(__name__)


class AdminApi:
    """The handlers. Requests are answered only while `is_serving`."""

    def __init__(self, access: AdminAccess, home: Home, is_serving: Callable[[], bool]) -> None:
        self._access = access
        self._home = home
        self._is_serving = is_serving

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/sessions", self._sessions),
            web.get("/admin/session", self._session),
            web.delete("/admin/session", self._end),
            web.delete("/admin/connection", self._kick),
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
        if not self._is_serving():
            return refusal("the gateway is starting or being stopped; see /readyz", 503)
        try:
            answered: web.StreamResponse = await handler(request)
        except BadRequest as error:
            return refusal(str(error), 400)
        except web.HTTPException as error:
            return refusal(error.reason, error.status)
        return answered

    async def _sessions(self, request: web.Request) -> web.Response:
        query = parameters(request, "prefix", "after", "state", "limit")
        state = _one_of(query.get("state", ""))
        wanted = Wanted(query.get("prefix", ""), query.get("after", ""), state, _limit(query.get("limit", "")))
        return answer(await page(self._home.states, wanted))

    async def _session(self, request: web.Request) -> web.Response:
        client = _client(request)
        session = self._home.session(client)
        return _unknown(client) if session is None else answer(detail(session))

    async def _kick(self, request: web.Request) -> web.Response:
        return await self._end_of(request, end_session=False)

    async def _end(self, request: web.Request) -> web.Response:
        return await self._end_of(request, end_session=True)

    async def _end_of(self, request: web.Request, *, end_session: bool) -> web.Response:
        client = _client(request)
        kicked = await self._home.kick(client, end_session=end_session)
        if kicked is None:
            return _unknown(client)
        log.info("client kicked", client=client, session_ended=kicked.session, peer=request.remote)
        return answer({"client": client, "connection_ended": kicked.connection, "session_ended": kicked.session})


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


def _unknown(client: str) -> web.Response:
    return refusal(f"this gateway has no session of {client!r}", 404)
