"""HTTP/1.1 and 1.0 on a socket (aiohttp): connections, limits, time-outs and routing of requests (G11)."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec
import structlog
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import Handler

from gateway.access.enrolment import Enrolment
from gateway.errors import NotAdmitted, ProxyHeaderError
from gateway.feeds.service import FeedService
from gateway.host.host_server import HostServer
from gateway.host.proxies import TrustedProxies
from gateway.host.tls import ServerTls, common_name
from gateway.http.body import BodyReader
from gateway.http.bundle_routes import BundleRoutes
from gateway.http.bundles_elsewhere import BundlesElsewhere
from gateway.http.bundles_handler import BundlesHandler, Mesh
from gateway.http.connect_handler import ConnectHandler
from gateway.http.connection import STREAM, HttpConnection, begun
from gateway.http.enrolment_handler import EnrolmentHandler
from gateway.http.feeds_handler import FeedsHandler
from gateway.http.forwarding import Forwarding, forwarded_origin, is_from_member
from gateway.http.http_publisher import HttpPublisher
from gateway.http.identity import ANONYMOUS, Caller, Origin, admit, client_name, new_nameless, one_header
from gateway.http.message_presence_handler import (
    EVENT_BYTES,
    QUERY_BYTES,
    REPORTS_BYTES,
    MessagePresenceHandler,
    named_message,
)
from gateway.http.openapi import openapi
from gateway.http.posted_message import posted
from gateway.http.problems import Problem, bad_request, problem_response, refusal
from gateway.http.requests_handler import RequestsHandler
from gateway.http.responses import json_response
from gateway.http.streams import Acknowledgement, Streams, event_id, stream_request
from gateway.http.target import query_of, raw_tail
from gateway.listening import open_tcp
from gateway.members.access_point import AccessPoint
from gateway.timed_connection import TLS_CLOSE_S
from schemas.access_settings import trusts_this_machine
from schemas.enrolment import ENROLMENTS_PATH, RENEWAL_PATH, EnrolmentAnswer
from schemas.enrolment import REQUEST_BYTES_MAX as ENROLMENT_BYTES
from schemas.mesh_api import QUERY_PATH, REPORTS_PATH
from schemas.settings import GatewaySettings
from schemas.this_machine import names_this_machine
from schemas.undecodable import UNDECODABLE

_OPENAPI = "/openapi.json"
_CONNECT = "/v1/connect"
_MESSAGE_PRESENCE = "/v1/message-presence/{id:(?s:.*)}"
_FOREIGN = ("cross-site", "same-site")
_LINGER_S = 1.0
_MEMBERS_FIELDS = 8
"""How many header fields a gateway may add to those of a client."""
_STOP_TIMEOUT_S = 2.0
_ACKNOWLEDGEMENT_BYTES = 1024

log = structlog.get_logger(__name__)


class HttpServer:
    """The HTTP bearer of a gateway. Handlers end with their connection (handler_cancellation)."""

    def __init__(
        self,
        hosts: HostServer,
        settings: GatewaySettings,
        access_point: AccessPoint,
        enrolment: Enrolment | None = None,
        mesh: Mesh | None = None,
        feeds: FeedService | None = None,
    ) -> None:
        self._hosts = hosts
        self._gateway = settings
        self._settings = settings.http
        self.bodies = BodyReader(settings.http)
        self._streams = Streams(hosts, settings.http)
        self._forwarding = Forwarding(hosts, settings.http)
        hosts.member_http = partial(self._connection, is_member=True)
        self._publisher = HttpPublisher(hosts, settings.http)
        platform = None if mesh is None else mesh.platform
        self._presence_handler = MessagePresenceHandler(hosts, settings.http.kafka_timeout_s, platform)
        handler = BundlesHandler(mesh, settings.mesh, hosts.now)
        elsewhere = BundlesElsewhere(handler, self._forwarding, hosts, settings.mesh)
        bundles = BundleRoutes(handler, elsewhere, self._caller, self._origin, self.bodies)
        self._connect_handler = ConnectHandler(access_point, settings.limits.client_id_bytes)
        self._enrolment_handler = EnrolmentHandler(enrolment, settings.enrolment, asyncio.get_running_loop().time)
        self._feeds_handler = FeedsHandler(feeds, hosts, settings.http, self.bodies, self._caller, self._cross_origin)
        ways = self._publisher, self._forwarding, self._caller, self._origin, self._cross_origin
        self._requests_handler = RequestsHandler(hosts, settings.http, self.bodies, *ways)
        self._openapi = msgspec.json.encode(openapi(settings))
        self._checks_host = trusts_this_machine(settings.host, settings.authentication)
        self._requests = 0
        self._is_stopping = False
        self._server = web.Server(self._handle, request_factory=begun, handler_cancellation=True)
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._listeners: list[asyncio.Server] = []
        self.routes = web.UrlDispatcher()
        self.routes.add_routes(
            [
                web.post("/v1/messages/{destination:(?s:.*)}", self._publish),
                web.get(STREAM, self._stream, allow_head=False),
                web.post("/v1/stream/ack", self._acknowledge),
                *bundles.routes(),
                web.post(REPORTS_PATH, self._tell_of_messages),
                web.post(QUERY_PATH, self._ask_of_messages),
                web.get(_MESSAGE_PRESENCE, self._ask_message_presence, allow_head=False),
                web.post(_MESSAGE_PRESENCE, self._tell_message_presence),
                web.get(_CONNECT, self._connect, allow_head=False),
                web.post(ENROLMENTS_PATH, self._enrol),
                web.post(RENEWAL_PATH, self._renew),
                *self._feeds_handler.routes(),
                *self._requests_handler.routes(),
                web.get(_OPENAPI, self._describe, allow_head=False),
            ]
        )

    async def open(self, tls: ServerTls | None = None) -> dict[str, int]:
        """Returns the ports by name, `http` and `https`, without those that are off; `https` only if `tls` is given.
        Raises SettingsError for an address that cannot be used."""
        gateway = self._gateway
        ports = {"http": await self._listen("gateway.http_port", gateway.host, gateway.http_port, None)}
        if tls is not None:
            ports["https"] = await self._listen("gateway.tls.https_port", gateway.host, gateway.tls.https_port, tls)
        return {name: port for name, port in ports.items() if port is not None}

    async def _listen(self, setting: str, host: str, port: int | str, tls: ServerTls | None) -> int | None:
        if isinstance(port, str):
            return None
        listener = await open_tcp(setting, host, port, self._connection, tls, TLS_CLOSE_S)
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    def _connection(self, *, is_member: bool = False) -> HttpConnection:
        settings = self._settings
        return HttpConnection(
            self._hosts,
            self._server,
            settings.write_timeout_s,
            is_member=is_member,
            keepalive_timeout=settings.read_timeout_s,
            lingering_time=_LINGER_S,
            max_line_size=settings.header_bytes,
            max_field_size=settings.header_bytes,
            max_headers=settings.header_fields + (_MEMBERS_FIELDS if is_member else 0),
            auto_decompress=False,
            access_log=None,
        )

    async def stop(self) -> None:
        """Accepts no more connections, ends streams with a last event, and lets running requests finish."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._streams.stop()
        self._forwarding.stop()
        self._feeds_handler.stop()
        self._requests_handler.stop()
        self._server.pre_shutdown()
        await self._server.shutdown(_STOP_TIMEOUT_S)
        if self._hosts.relays is not None:
            await self._hosts.relays.calls.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers: dict[str, str] = {}
        try:
            self._check_host(request)
            headers = self._cross_origin(request)
            response = await self._answer(cast(web.Request, request))
        except Problem as problem:
            response = problem_response(problem)
        except NotAdmitted as error:  # the client's home has just left, and nobody else is known to have it
            response = problem_response(refusal(error.reason))
        except ConnectionError:
            raise
        except Exception:
            log.exception("request failed", path=request.path)
            response = problem_response(Problem(500, "internal_error", "the gateway failed; its log says why"))
        if not response.prepared:
            response.headers.update(headers)
        if cast(HttpConnection, request.protocol).is_last:
            response.force_close()
        self._hosts.counts[f"http_{response.status}"] += 1
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.version not in (HttpVersion10, HttpVersion11):
            raise Problem(505, "http_version", "only HTTP/1.1 and 1.0 are supported", close=True)
        if is_from_member(request) and (own := self._hosts.member_requests.get((request.method, request.path))):
            return cast(web.StreamResponse, await own(request))
        handler = await self._handler(request)
        if self._is_stopping:
            raise Problem(503, "server_shutting_down", "the gateway is being stopped; try again later", close=True)
        if handler in (
            self._stream,
            self._feeds_handler.stream,
            self._requests_handler.ask,
        ):  # these have limits of their own
            return await handler(request)
        if self._requests >= self._settings.requests:
            raise Problem(503, "too_many_requests_at_once", "too many concurrent requests; nothing was done, try again")
        self._requests += 1
        try:
            return await handler(request)
        finally:
            self._requests -= 1

    async def _handler(self, request: web.Request) -> Handler:
        """The handler of the request's path and method. Raises Problem 404, 405.

        Does not use `UrlDispatcher.resolve`: its time grows with the square of the path's slashes (a topic has many).
        """
        allowed = set[str]()
        for resource in self.routes.resources():
            found, methods = await resource.resolve(request)
            if found is not None:
                return found.handler
            allowed |= methods
        if not allowed:
            raise Problem(404, "not_found", f"this path does not exist; {_OPENAPI} lists all paths")
        allow = ", ".join(sorted(allowed))
        raise Problem(405, "method_not_allowed", f"only {allow} is allowed here", allow=allow)

    async def _describe(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type="application/json")

    async def _publish(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        message = posted(raw_tail(request), query_of(request), request.headers)
        if "Content-Encoding" in request.headers:
            raise Problem(415, "content_encoding", "Content-Encoding is not supported: the body is delivered as it is")
        body = await self.bodies.read(request, self._hosts.limits.packet_bytes)
        message.packet.payload = body
        if message.key and caller.is_known:
            answered = await self._forwarding.answer(request, self._origin(request), caller.client, body)
            if answered is not None:
                return answered
        stored = await self._publisher.publish(caller, message)
        response = json_response({"id": stored.message_id}, status=202)
        if stored.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def _ask_message_presence(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        message_id = named_message(raw_tail(request))
        query_of(request).done(())
        return json_response(self._presence_handler.ask(caller, message_id))

    async def _tell_message_presence(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        message_id = named_message(raw_tail(request))
        query_of(request).done(())
        body = await self.bodies.read_json(request, EVENT_BYTES)
        claimed = await self._presence_handler.say(caller, message_id, body)
        return web.Response(status=204) if claimed is None else json_response(claimed)

    async def _tell_of_messages(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        query_of(request).done(())
        body = await self.bodies.read_json(request, REPORTS_BYTES)
        return json_response(await self._presence_handler.say_many(caller, body))

    async def _ask_of_messages(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        query_of(request).done(())
        body = await self.bodies.read_json(request, QUERY_BYTES)
        return json_response(await self._presence_handler.ask_many(caller, body))

    async def _connect(self, request: web.Request) -> web.Response:
        self._connect_handler.check_enabled()
        await self._caller(request)
        response = json_response(self._connect_handler.answer(query_of(request)))
        response.headers["Cache-Control"] = self._connect_handler.caching
        return response

    async def _enrol(self, request: web.Request) -> web.Response:
        return await self._enrolled(request, self._enrolment_handler.enrol)

    async def _renew(self, request: web.Request) -> web.Response:
        return await self._enrolled(request, self._enrolment_handler.renew)

    async def _enrolled(self, request: web.Request, act: Callable[[bytes, str], EnrolmentAnswer]) -> web.Response:
        """These requests have their own credential, and need no other."""
        peer = self._origin(request).peer
        self._enrolment_handler.check(peer)
        query_of(request).done(())
        body = await self.bodies.read_json(request, ENROLMENT_BYTES)
        response = json_response(act(body, peer))
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        query = query_of(request)
        name = query.take("client")
        if name is not None and "X-Client-Id" in request.headers:
            raise bad_request("repeated_parameter", "client and X-Client-Id mean the same: send only one of them")
        caller = await self._caller(request, name, new_nameless(self._hosts.home.has_shard_of))
        asked = stream_request(query, one_header(request.headers, "Last-Event-ID"))
        headers = self._cross_origin(request)
        self._streams.check(caller, asked, self._forwarding.streams)
        forwarded = await self._forwarding.stream(request, self._origin(request), caller.client, headers)
        return forwarded or await self._streams.serve(request, caller, asked, headers)

    async def _acknowledge(self, request: web.Request) -> web.Response:
        caller = await self._caller(request)
        query_of(request).done(())
        body = await self.bodies.read_json(request, _ACKNOWLEDGEMENT_BYTES)
        try:
            last = event_id(msgspec.json.decode(body, type=Acknowledgement).last_event_id)
        except UNDECODABLE as error:
            raise bad_request("malformed_body", 'the body is not {"last_event_id": "…"}') from error
        if not caller.is_known:
            raise Problem(404, "no_stream", "a stream without a client name needs no acknowledgements")
        answered = await self._forwarding.answer(request, self._origin(request), caller.client, body)
        if answered is not None:
            return answered
        self._streams.acknowledge(caller.client, last)
        return web.Response(status=204)

    async def _caller(self, request: web.BaseRequest, name: str | None = None, nameless: str = ANONYMOUS) -> Caller:
        name = client_name(one_header(request.headers, "X-Client-Id") if name is None else name)
        origin = self._origin(request)
        try:
            return await admit(
                self._hosts.authenticator, request.headers, name, nameless, origin, self._hosts.not_admitted
            )
        except Problem as problem:
            if problem.reason == "malformed_credentials":  # the authenticator was not asked
                self._hosts.counts["not_admitted"] += 1
            raise

    def _origin(self, request: web.BaseRequest) -> Origin:
        """Raises Problem 400 if a trusted proxy names no client, ConnectionError if the connection has ended."""
        if request.transport is None:
            raise ConnectionResetError
        if is_from_member(request):
            return forwarded_origin(request.headers)
        host, port = request.transport.get_extra_info("peername")[:2]
        try:
            peer = self._proxies.peer(host, port, request.headers.getall("X-Forwarded-For", []))
        except ProxyHeaderError as error:
            raise bad_request("malformed_header", str(error)) from error
        return Origin(peer, common_name(request.transport.get_extra_info("peercert")))

    def _check_host(self, request: web.BaseRequest) -> None:
        """Raises Problem 403 for a page of a foreign name that resolves to this machine. Browsers take such a page for
        one of the gateway's own. With TLS the certificate keeps it out, and another gateway has looked already."""
        if not self._checks_host or request.secure or is_from_member(request):
            return
        if not all(map(names_this_machine, request.headers.getall("Host", []))):
            raise Problem(403, "host_not_allowed", "the header Host must be localhost or a loopback address")

    def _cross_origin(self, request: web.BaseRequest) -> dict[str, str]:
        """CORS headers that let the calling page read the answer. Raises Problem 403 if its origin is not allowed. The
        gateway that has sent a request on has looked, and adds the headers."""
        if is_from_member(request):
            return {}
        origin = request.headers.get("Origin")
        if origin is None:  # an image or a link of another page names none
            if request.path.startswith("/v1/") and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
                raise Problem(403, "origin_not_allowed", "pages of other origins may not ask for this")
            return {}
        if origin not in self._settings.origins:
            raise Problem(403, "origin_not_allowed", "this origin is not allowed; see gateway.http.origins")
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
