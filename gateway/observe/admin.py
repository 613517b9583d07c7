"""The admin API: list, show and end sessions. JSON; every error is `{"error": "<a sentence>"}`.

| request | answer |
|---|---|
| `GET /admin/sessions?prefix=&state=&limit=&after=` | a page of sessions |
| `GET /admin/session?client=` | one session |
| `DELETE /admin/connection?client=` | its connection is ended with 0x98 |
| `DELETE /admin/session?client=` | the connection and the session are ended |

The client id is in the query, because it may be any text. Requests that change something use DELETE: a web page cannot
send that to another origin without a preflight request.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web

from gateway.observe.admission import TokenError, read_token, refusal
from gateway.observe.sessions import State, Wanted, detail, page
from gateway.shard.home import Home

_PAGE = 100
_PAGE_MOST = 1_000
_STATES: tuple[State, ...] = ("connected", "offline")

log = structlog.get_logger(__name__)


class _BadRequest(ValueError):
    """The query is invalid; the text says how to correct it."""


class AdminApi:
    """The handlers. `token_file` is "" if no token is required; requests are answered only while `is_serving`. Raises
    TokenError if the file holds no token."""

    def __init__(self, counts: Counter[str], home: Home, token_file: str, is_serving: Callable[[], bool]) -> None:
        self._counts = counts
        self._home = home
        self._token_file = token_file
        self._is_serving = is_serving
        self._said_at = float("-inf")
        if token_file:
            read_token(token_file)

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
            answer: web.StreamResponse = await handler(request)
            return answer
        try:
            token = read_token(self._token_file) if self._token_file else None
        except TokenError as error:
            log.error("the admin API refuses all requests", reason=str(error))
            return _json({"error": "the gateway cannot read the token of the admin API; its log says why"}, 503)
        refused = refusal(token, request.headers, request.remote or "")
        if refused is not None:
            self._note_refusal(request, refused.status)
            return _json({"error": refused.sentence}, refused.status)
        if not self._is_serving():
            return _json({"error": "the gateway is starting or being stopped; see /readyz"}, 503)
        try:
            answered: web.StreamResponse = await handler(request)
        except _BadRequest as error:
            return _json({"error": str(error)}, 400)
        except web.HTTPException as error:
            return _json({"error": error.reason}, error.status)
        return answered

    def _note_refusal(self, request: web.Request, status: int) -> None:
        """Counts every refusal; logs at most one per second."""
        self._counts["admin_refused"] += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= 1:
            self._said_at = now
            log.warning("admin request refused", peer=request.remote, status=status)

    async def _sessions(self, request: web.Request) -> web.Response:
        query = _query(request, "prefix", "after", "state", "limit")
        state = _one_of(query.get("state", ""))
        wanted = Wanted(query.get("prefix", ""), query.get("after", ""), state, _limit(query.get("limit", "")))
        return _json(await page(self._home.states, wanted))

    async def _session(self, request: web.Request) -> web.Response:
        client = _client(request)
        session = self._home.session(client)
        return _unknown(client) if session is None else _json(detail(session))

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
        return _json({"client": client, "connection_ended": kicked.connection, "session_ended": kicked.session})


def _query(request: web.Request, *known: str) -> dict[str, str]:
    unknown = sorted(set(request.query) - set(known))
    if unknown:
        raise _BadRequest(f"unknown parameter {unknown[0]!r}; allowed: {', '.join(known)}")
    return dict(request.query)


def _client(request: web.Request) -> str:
    client = _query(request, "client").get("client", "")
    if not client:
        raise _BadRequest("the parameter `client` is missing: ?client=<client id>")
    return client


def _one_of(text: str) -> State | None:
    for state in _STATES:
        if text == state:
            return state
    if text:
        raise _BadRequest(f"state={text!r} is not allowed: {' or '.join(_STATES)}")
    return None


def _limit(text: str) -> int:
    if not text:
        return _PAGE
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _PAGE_MOST):
        raise _BadRequest(f"limit={text[:20]!r} is not allowed: 1 to {_PAGE_MOST}")
    return int(text)


def _unknown(client: str) -> web.Response:
    return _json({"error": f"this gateway has no session of {client!r}"}, 404)


def _json(content: Any, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        body=msgspec.json.encode(content), status=status, headers=headers, content_type="application/json"
    )
