"""Requests of agents that carry bundles: who asks, and the body, for their handlers (M7, M14, M15, M17, M21)."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.http.body import BodyReader
from gateway.http.bundles_elsewhere import Asked, BundlesElsewhere
from gateway.http.bundles_handler import CERTIFICATES_BYTES, RECEIPTS_BYTES, WAITING_BYTES, BundlesHandler
from gateway.http.identity import Caller, Origin
from gateway.http.responses import json_response
from gateway.http.target import query_of
from schemas.mesh_api import BUNDLES_PATH, CERTIFICATES_PATH, MESH_PATH, RECEIPTS_PATH, WAITING_PATH


class BundleRoutes:
    """`caller` admits a request's client, `origin` says where it comes from."""

    def __init__(
        self,
        handler: BundlesHandler,
        elsewhere: BundlesElsewhere,
        caller: Callable[[web.BaseRequest], Awaitable[Caller]],
        origin: Callable[[web.BaseRequest], Origin],
        bodies: BodyReader,
    ) -> None:
        self._handler, self._elsewhere = handler, elsewhere
        self._caller, self._origin, self._bodies = caller, origin, bodies

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(BUNDLES_PATH, self._take),
            web.post(WAITING_PATH, self._give_waiting),
            web.post(RECEIPTS_PATH, self._take_receipts),
            web.get(MESH_PATH, self._state, allow_head=False),
            web.post(CERTIFICATES_PATH, self._exchange_certificates),
        ]

    async def _take(self, request: web.Request) -> web.Response:
        caller, handler = await self._caller(request), self._handler
        query_of(request).done(())
        with handler.bringing(caller):
            body = await self._bodies.read_json(request, handler.body_bytes)
            return json_response(await handler.take(caller, body))

    async def _give_waiting(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        query_of(request).done(())
        with self._handler.asking(caller):
            body = await self._bodies.read_json(request, WAITING_BYTES)
            asked = Asked(request, caller, self._origin(request))
            return json_response(await self._elsewhere.give_waiting(asked, body))

    async def _take_receipts(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        query_of(request).done(())
        with self._handler.bringing(caller):
            body = await self._bodies.read_json(request, RECEIPTS_BYTES)
            asked = Asked(request, caller, self._origin(request))
            return json_response(await self._elsewhere.take_receipts(asked, body))

    async def _state(self, request: web.Request) -> web.Response:
        await self._caller(request)
        query_of(request).done(())
        return json_response(self._handler.state())

    async def _exchange_certificates(self, request: web.Request) -> web.Response:
        caller, handler = await self._caller(request), self._handler
        query_of(request).done(())
        with handler.bringing(caller):
            body = await self._bodies.read_json(request, CERTIFICATES_BYTES)
            return json_response(await handler.exchange_certificates(body))
