"""The console over HTTP: who may see it, its headers, its pages, and the two forms that change something.

| request | answer |
|---|---|
| `GET /console`, `/console/shards`, … | a page; only its part `live` with the header `X-Console-Part: live` |
| `POST /console/kick?client=` | its connection is ended with 0x98 |
| `POST /console/end?client=` | the connection and the session are ended |

Both are passed on to the client's home if that is another gateway by then, and answered in bounded time
(:mod:`gateway.observe.site_sessions`).

Access is that of the admin API (:mod:`gateway.observe.admission`), with the token as password of a browser's Basic
credentials. Forms exist only where a token is configured, and so shown: without one, any program on this machine may
look, and none may change anything here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import structlog
from aiohttp import web

from gateway.console import clients, messages, redundant_feeds, render, retained
from gateway.console.facts import ConsoleFacts, NotFound
from gateway.console.form_tokens import FormTokens, is_same_origin
from gateway.console.parts import Action, Banner, Page, Section, link
from gateway.console.text import moment
from gateway.errors import HomeUnreachable, NotAdmitted
from gateway.observe.admission import AdminAccess
from gateway.observe.readiness import Readiness
from gateway.observe.site_sessions import SiteSessions
from gateway.shard.home import Home
from schemas.operator_access import as_bearer

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with `no-referrer` browsers send forms with `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_CHALLENGE = 'Basic realm="waystation console: any user name, the admin token as password", charset="UTF-8"'
_KICK, _END = "/console/kick", "/console/end"
_NOTICES = {
    "kicked": "The client was disconnected. Its session stays, and it may reconnect.",
    "away": "The client was not connected.",
    "ended": "The client was disconnected, and its session has ended.",
}

View = Callable[[Mapping[str, str]], Awaitable[Page]]

log = structlog.get_logger(__name__)


class Console:
    """The handlers. `facts` makes the pages; `clock` gives seconds since the epoch."""

    def __init__(
        self,
        facts: ConsoleFacts,
        access: AdminAccess,
        sessions: SiteSessions,
        home: Home,
        readiness: Readiness,
        clock: Callable[[], float],
        version: str,
    ) -> None:
        self._facts = facts
        self._access = access
        self._sessions = sessions
        self._home = home
        self._readiness = readiness
        self._clock = clock
        self._version = version
        self._tokens = FormTokens()

    def routes(self) -> list[web.RouteDef]:
        facts = self._facts
        views: dict[str, View] = {
            "/console/shards": facts.shards,
            clients.PATH: facts.clients,
            clients.CLIENT_PATH: self._client,
            clients.QUEUES_PATH: facts.queues,
            retained.PATH: partial(facts.topics, self._shows_values),
            retained.TOPIC_PATH: partial(facts.topic, self._shows_values),
            messages.PATH: facts.messages,
            redundant_feeds.PATH: facts.feeds,
            "/console/refusals": facts.refusals,
            "/console/applications": facts.applications,
        }
        return [
            web.get("/console", self._guarded(partial(self._show, facts.overview))),
            web.get("/console/", self._guarded(partial(self._show, facts.overview))),
            *(web.get(path, self._guarded(partial(self._show_serving, view))) for path, view in views.items()),
            *(web.get(f"/console/{file}", self._guarded(partial(_asset, file))) for file in render.ASSETS),
            web.post(_KICK, self._guarded(partial(self._end_of, False))),
            web.post(_END, self._guarded(partial(self._end_of, True))),
            web.get("/console/{rest:.*}", self._guarded(self._unknown)),
        ]

    @property
    def _shows_values(self) -> bool:
        return self._access.requires_token or self._facts.values_are_public

    def _guarded(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[..., Awaitable[web.Response]]:
        """Lets in who may use the admin API; all answers have the headers."""

        async def guarded(request: web.Request) -> web.Response:
            refused = self._access.check(request, takes_basic=True)
            answer = _text(refused.status, refused.sentence) if refused is not None else await handler(request)
            if answer.status == 401:
                answer.headers["WWW-Authenticate"] = _CHALLENGE
            answer.headers.update(_HEADERS)
            return answer

        return guarded

    async def _show(self, view: View, request: web.Request) -> web.Response:
        try:
            page, status = await view(request.query), 200
        except NotFound as error:
            page, status = Page("", "Not found", (error.section,)), 404
        return await self._rendered(page, request, status)

    async def _show_serving(self, view: View, request: web.Request) -> web.Response:
        """Pages about sessions, which are complete only once they are recovered."""
        phase = self._readiness.phase
        if not phase:
            return await self._show(view, request)
        return await self._rendered(Page("", "Not serving", (Section("Not serving", f"{phase}."),)), request, 503)

    async def _rendered(self, page: Page, request: web.Request, status: int) -> web.Response:
        health = await self._readiness.check()
        fault = "; ".join(f"{part}: {fault}" for part, fault in health.faults.items() if fault)
        banner = Banner(self._facts.gateway, self._version, moment(self._clock()), fault, self._facts.warning())
        only_live = request.headers.get("X-Console-Part") == "live"
        body = await asyncio.to_thread(render.html, page, banner, only_live=only_live)
        return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")

    async def _client(self, query: Mapping[str, str]) -> Page:
        client = query.get("client", "")
        actions: list[Action] = []
        if self._access.requires_token:
            labels = {_KICK: "Disconnect", _END: "Disconnect and end the session"}
            paths = {link(path, client=client): label for path, label in labels.items()}
            actions = [Action(label, path, self._tokens.make(path)) for path, label in paths.items() if path]
        return await self._facts.client(client, actions, _NOTICES.get(query.get("done", ""), ""))

    async def _end_of(self, end_session: bool, request: web.Request) -> web.Response:
        """Ends a connection, and the session if asked to; then shows the client's page, or the list."""
        if not self._access.requires_token:
            return _text(403, "the console changes nothing unless gateway.admin_token_file is set")
        if not is_same_origin(request.headers):
            return _text(403, "the form was not sent from this console: a proxy in between must pass `Host` on")
        form, client = await request.post(), request.query.get("client", "")
        path = link(_END if end_session else _KICK, client=client)
        if not self._tokens.is_valid(path, str(form.get("token", ""))):
            return _text(403, "the form is from before the gateway's start: load the client's page again")
        if self._readiness.phase:
            return _text(503, "the gateway is starting or being stopped")
        authorization = as_bearer(request.headers.get("Authorization", ""))
        try:  # the client's home may be another gateway by now
            kicked = await self._sessions.kick(client, authorization, end_session=end_session)
        except (HomeUnreachable, NotAdmitted) as error:
            return _text(503, f"it is not known whether the connection has ended: {error}")
        if kicked is None:
            return _text(404, "no gateway that can be asked has a session of that client")
        log.info("client kicked", client=client, session_ended=kicked["session_ended"], peer=request.remote)
        if "home" in kicked:
            ended = "the session has ended" if kicked["session_ended"] else "the session stays"
            return _text(200, f"the client's home, {kicked['home']}, has ended its connection, if it had one; {ended}")
        done = "ended" if kicked["session_ended"] else "kicked" if kicked["connection_ended"] else "away"
        there = self._home.session(client) is not None
        location = link(clients.CLIENT_PATH, client=client, done=done) if there else clients.PATH
        return web.Response(status=303, headers={"Location": location or clients.PATH})

    async def _unknown(self, request: web.Request) -> web.Response:
        page = Page("", "Not found", (Section("Not found", "The console has no such page."),))
        return await self._rendered(page, request, 404)


async def _asset(file: str, request: web.Request) -> web.Response:
    body = await asyncio.to_thread(render.asset, file)
    return web.Response(body=body, content_type=render.ASSETS[file], charset="utf-8")


def _text(status: int, sentence: str) -> web.Response:
    return web.Response(text=f"{sentence}\n", status=status, content_type="text/plain", charset="utf-8")
