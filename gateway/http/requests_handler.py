"""Handles `POST /v1/requests/…`: a program asks over HTTP, and waits for replies of MQTT clients (R6)."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from gateway.errors import NotAdmitted
from gateway.host.host_server import HostServer
from gateway.http.body import BodyReader
from gateway.http.http_publisher import HttpPublisher
from gateway.http.identity import Caller
from gateway.http.problems import Problem, bad_request
from gateway.http.reply_address import ReplyAddress, keyed_address, new_address
from gateway.http.request_exchange import RequestExchange
from gateway.http.requested import Requested, requested
from gateway.http.target import query_of, raw_tail
from gateway.http.waiting_requests import WaitingRequests
from mqtt.codes import ReasonCode
from schemas.http_settings import HttpSettings

_PATH: Final = "/v1/requests/{destination:(?s:.*)}"


class RequestsHandler:
    """`caller` admits a request's client, `cross_origin` gives the headers for the page that asks."""

    def __init__(
        self,
        hosts: HostServer,
        settings: HttpSettings,
        bodies: BodyReader,
        publisher: HttpPublisher,
        caller: Callable[[web.BaseRequest], Awaitable[Caller]],
        cross_origin: Callable[[web.BaseRequest], dict[str, str]],
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._bodies = bodies
        self._caller = caller
        self._cross_origin = cross_origin
        self._exchange = RequestExchange(hosts, settings, publisher)
        self.waiting = WaitingRequests(settings.waiting_requests, settings.waiting_requests_per_client)

    def routes(self) -> list[web.RouteDef]:
        return [web.post(_PATH, self.ask)]

    def stop(self) -> None:
        """Ends every waiting request with the reason that the gateway is shutting down."""
        self._exchange.stop()

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """Sends the request, and answers with what comes back. Raises Problem."""
        caller = await self._caller(request)
        asked = requested(raw_tail(request), query_of(request), request.headers, self._settings)
        if asked.posted.key and not caller.is_known:
            raise bad_request(
                "nameless_client", "an Idempotency-Key needs a client name: send X-Client-Id or credentials"
            )
        if "Content-Encoding" in request.headers:
            raise Problem(415, "content_encoding", "Content-Encoding is not supported: the body is delivered as it is")
        with self.waiting.one_more(caller):
            asked.posted.packet.payload = await self._bodies.read(request, self._hosts.limits.packet_bytes)
            address = self._address(caller, asked)
            return await self._exchange.serve(request, caller, asked, address, self._cross_origin(request))

    def _address(self, caller: Caller, asked: Requested) -> ReplyAddress:
        """Raises NotAdmitted if the shard that it needs is not here."""
        if asked.posted.key:
            return keyed_address(self._hosts.home, caller.client, asked.posted.key)
        address = new_address(self._hosts.home)
        if address is None:
            raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "this gateway has no shard")
        return address
