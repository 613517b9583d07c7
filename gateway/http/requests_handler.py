"""Handles `POST /v1/requests/…`: a program asks over HTTP, and waits for replies of MQTT clients (R6)."""

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

from aiohttp import web

from gateway.host.host_server import HostServer
from gateway.http.body import BodyReader
from gateway.http.forwarding import Forwarding, SentRequest, is_from_member
from gateway.http.http_publisher import HttpPublisher
from gateway.http.identity import Caller, Origin
from gateway.http.problems import Problem, bad_request
from gateway.http.reply_address import keyed_address, new_address
from gateway.http.request_exchange import RequestExchange
from gateway.http.requested import Requested, requested
from gateway.http.target import query_of, raw_tail
from gateway.http.waiting_requests import WaitingRequests
from schemas.http_settings import HttpSettings

_PATH: Final = "/v1/requests/{destination:(?s:.*)}"


class RequestsHandler:
    """`caller` admits a request's client, `origin` says where it comes from, `cross_origin` gives the headers for the
    page that asks."""

    def __init__(
        self,
        hosts: HostServer,
        settings: HttpSettings,
        bodies: BodyReader,
        publisher: HttpPublisher,
        forwarding: Forwarding,
        caller: Callable[[web.BaseRequest], Awaitable[Caller]],
        origin: Callable[[web.BaseRequest], Origin],
        cross_origin: Callable[[web.BaseRequest], dict[str, str]],
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._bodies = bodies
        self._forwarding = forwarding
        self._caller, self._origin = caller, origin
        self._cross_origin = cross_origin
        self._exchange = RequestExchange(hosts, settings, publisher)
        most, most_per_client = settings.waiting_requests, settings.waiting_requests_per_client
        self.waiting = WaitingRequests(most, most_per_client, hosts.counts)
        hosts.waiting_requests = self.waiting.__len__

    def routes(self) -> list[web.RouteDef]:
        return [web.post(_PATH, self.ask)]

    def stop(self) -> None:
        """Ends every waiting request with the reason that the gateway is shutting down."""
        self._exchange.stop()

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """Sends the request, and answers with what comes back. Raises Problem."""
        caller = await self._caller(request)
        asked = requested(raw_tail(request), query_of(request), request.headers, self._settings)
        if asked.key and not caller.is_known and not is_from_member(request):
            raise bad_request(
                "nameless_client", "an Idempotency-Key needs a client name: send X-Client-Id or credentials"
            )
        if "Content-Encoding" in request.headers:
            raise Problem(415, "content_encoding", "Content-Encoding is not supported: the body is delivered as it is")
        with self.waiting.one_more(caller):
            asked.posted.packet.payload = await self._bodies.read(request, self._hosts.limits.packet_bytes)
            address = None if asked.key else new_address(self._hosts.home)
            if address is not None:
                return await self._exchange.serve(request, caller, asked, address, self._cross_origin(request))
            return await self._with_key(request, caller, asked if asked.key else asked.with_key(uuid4().hex))

    async def _with_key(self, request: web.Request, caller: Caller, asked: Requested) -> web.StreamResponse:
        """The client's home serves it. So does that of a client whose request has got its key from a gateway without a
        shard: the key lets that gateway send the request to the next home, should the first one not answer."""
        packet = asked.posted.packet
        most = self._settings.reply_bytes
        sent = SentRequest(caller.client, packet.payload, asked.key, asked.timeout_s, most, asked.wants_all)
        headers = self._cross_origin(request)
        passed = await self._forwarding.reply(request, self._origin(request), sent, headers)
        if passed is not None:
            return passed
        address = keyed_address(self._hosts.home, caller.client, asked.key)
        known = caller._replace(is_known=True)
        return await self._exchange.serve(request, known, asked, address, headers)
