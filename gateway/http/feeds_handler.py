"""Redundant feeds over HTTP: their state, subscribers, switches, events and administrative messages (S1, S4).

| right | lets a client |
|---|---|
| to subscribe to `feeds/<feed>/#` | see the feed, follow its events, subscribe to it |
| to publish to `$feeds/<feed>/switch` | make another stream the active one |
| to publish to `$feeds/<feed>/administrative` | send an administrative message, and see what became of it |

Nobody can really publish below `$feeds`: these topics only name rights, as those of message presence do.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiohttp import web

from feeds.message import FEED_NAME
from gateway.errors import BusError, FeedConflict, FeedLimitReached
from gateway.feeds.service import FeedService
from gateway.host.host_server import HostServer
from gateway.http.body import BodyReader
from gateway.http.feed_events import FeedStream
from gateway.http.identity import Caller, one_header
from gateway.http.message_presence_handler import decoded
from gateway.http.problems import Problem, bad_request, refusal
from gateway.http.responses import json_response
from gateway.http.streams import event_id, wait_seconds
from gateway.http.target import decode_percent, query_of
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.feed_api import (
    FEEDS_PATH,
    FEEDS_ROOT,
    PAYLOAD_BYTES,
    SUBSCRIBER_PATTERN,
    AdministrativeMessage,
    FeedList,
    SubscriberRequest,
    SwitchRequest,
)
from schemas.http_settings import HttpSettings

SUBSCRIBER_BYTES: Final = 4_096
SWITCH_BYTES: Final = 16_384
ADMINISTRATIVE_BYTES: Final = 1 << 20
"""The most that a request may have. Text may be escaped, so it is more than the text's own limit."""
EVENTS_PARAMETERS: Final = ("wait",)

_FEED, _NAMED = 3, 5  # parts of the path
_NAME: Final = re.compile(SUBSCRIBER_PATTERN)

T = TypeVar("T")


class FeedsHandler:
    """Handles requests about feeds. `service` is None if the gateway has none; `caller` admits a request's client,
    `cross_origin` gives the headers for the page that asks."""

    def __init__(
        self,
        service: FeedService | None,
        hosts: HostServer,
        settings: HttpSettings,
        bodies: BodyReader,
        caller: Callable[[web.BaseRequest], Awaitable[Caller]],
        cross_origin: Callable[[web.BaseRequest], dict[str, str]],
    ) -> None:
        self._service = service
        self._hosts = hosts
        self._settings = settings
        self._bodies = bodies
        self._caller = caller
        self._cross_origin = cross_origin
        self._streams: set[FeedStream] = set()

    def routes(self) -> list[web.RouteDef]:
        one = FEEDS_PATH + "/{feed}"
        return [
            web.get(FEEDS_PATH, self._list, allow_head=False),
            web.get(one, self._detail, allow_head=False),
            web.post(f"{one}/subscribers", self._subscribe),
            web.delete(one + "/subscribers/{subscriber}", self._unsubscribe),
            web.get(f"{one}/events", self.stream, allow_head=False),
            web.post(f"{one}/switch", self._switch),
            web.post(f"{one}/administrative", self._ask_administrative),
            web.get(one + "/administrative/{id}", self._administrative_state, allow_head=False),
        ]

    @property
    def streams(self) -> int:
        """Streams of events that are open."""
        return len(self._streams)

    def stop(self) -> None:
        """Ends every stream with the reason that the gateway is shutting down."""
        for stream in self._streams:
            stream.end(ReasonCode.SERVER_SHUTTING_DOWN)

    async def _list(self, request: web.Request) -> web.Response:
        caller, service = await self._caller(request), self._enabled()
        query_of(request).done(())
        readable = [feed for feed in service.feeds() if _may_read(caller, feed)]
        return json_response(FeedList(feeds=service.states(readable)))

    async def _detail(self, request: web.Request) -> web.Response:
        _, service, feed = await self._reader(request)
        query_of(request).done(())
        return json_response(service.detail(feed))

    async def _subscribe(self, request: web.Request) -> web.Response:
        caller, service, feed = await self._reader(request)
        query_of(request).done(())
        body = await self._bodies.read_json(request, SUBSCRIBER_BYTES)
        asked = decoded(body, SubscriberRequest)
        return json_response(await self._stored(service.subscribe(feed, asked, caller.client)))

    async def _unsubscribe(self, request: web.Request) -> web.Response:
        caller, service, feed = await self._reader(request)
        query_of(request).done(())
        name = _part(request, _NAMED)
        if _NAME.fullmatch(name) is None:
            raise bad_request(
                "malformed_subscriber",
                "a subscriber's name must have 1 to 128 letters, digits and - . _ : @ ~, and start with a letter or "
                "digit",
            )
        if not await self._stored(service.unsubscribe(feed, name, caller.client)):
            raise Problem(404, "unknown_subscriber", f"the feed {feed} has no subscriber of this name")
        return web.Response(status=204)

    async def _switch(self, request: web.Request) -> web.Response:
        caller, service, feed = await self._with_right(request, "switch")
        query_of(request).done(())
        body = await self._bodies.read_json(request, SWITCH_BYTES)
        return json_response(await self._stored(service.switch(feed, decoded(body, SwitchRequest), caller.client)))

    async def _ask_administrative(self, request: web.Request) -> web.Response:
        caller, service, feed = await self._with_right(request, "administrative")
        query_of(request).done(())
        body = await self._bodies.read_json(request, ADMINISTRATIVE_BYTES)
        message = decoded(body, AdministrativeMessage)
        if (message.payload is None) is (message.payload_base64 is None):
            raise bad_request("malformed_body", "send either payload or payload_base64")
        if message.payload is not None and len(message.payload.encode()) > PAYLOAD_BYTES:
            raise Problem(413, "packet_too_large", f"the payload is larger than {PAYLOAD_BYTES} bytes")
        state = await self._stored(service.administrative(feed, message, caller.client))
        response = json_response(state, status=202)
        response.headers["Location"] = f"{FEEDS_PATH}/{feed}/administrative/{state.id}"
        return response

    async def _administrative_state(self, request: web.Request) -> web.Response:
        _, service, feed = await self._with_right(request, "administrative")
        query_of(request).done(())
        state = service.administrative_state(feed, _part(request, _NAMED))
        if state is None:
            raise Problem(404, "unknown_request", "there is no such request, or its records are no longer kept")
        return json_response(state)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the state of a feed, then each change."""
        query = query_of(request)
        wait = query.take("wait")
        query.done(EVENTS_PARAMETERS)
        last_event = one_header(request.headers, "Last-Event-ID")
        caller, service, feed = await self._reader(request)
        resumed = None if last_event is None else event_id(last_event)
        wait_s = None if wait is None else wait_seconds(wait)
        if len(self._streams) >= service.event_streams:
            raise Problem(503, "too_many_streams", "too many streams of feeds' events are open; try again later")
        stream = FeedStream(service, feed, caller, self._settings, self._hosts.clock)
        self._streams.add(stream)
        try:
            return await stream.serve(request, resumed, wait_s, self._cross_origin(request))
        finally:
            self._streams.discard(stream)

    async def _reader(self, request: web.Request) -> tuple[Caller, FeedService, str]:
        """The caller, and the feed, which it may read. Raises Problem 400, 401, 403, 404."""
        caller, feed = await self._caller(request), _feed(request)
        if not _may_read(caller, feed):
            raise refusal(ReasonCode.NOT_AUTHORIZED)
        return caller, self._known(feed), feed

    async def _with_right(self, request: web.Request, right: str) -> tuple[Caller, FeedService, str]:
        """The same for a feed for which the caller has a right of its own."""
        caller, feed = await self._caller(request), _feed(request)
        reason = caller.rules.publish(Publish(f"{FEEDS_ROOT}/{feed}/{right}", b"")).reason
        if reason is not ReasonCode.SUCCESS:
            raise refusal(reason)
        return caller, self._known(feed), feed

    def _enabled(self) -> FeedService:
        if self._service is None:
            raise Problem(404, "unknown_feed", "this gateway serves no feeds")
        return self._service

    def _known(self, feed: str) -> FeedService:
        service = self._enabled()
        if not service.knows(feed):
            raise Problem(
                404,
                "unknown_feed",
                f"there is no feed {feed}: it is not in feeds.names, and no adapter has written to it",
            )
        return service

    async def _stored(self, work: Awaitable[T]) -> T:
        """The result of work that waits for Kafka. Raises Problem 409, 429, 503."""
        try:
            async with asyncio.timeout(self._settings.kafka_timeout_s):
                return await work
        except TimeoutError as error:
            raise Problem(503, "kafka_timeout", "Kafka did not answer in time; it may still be stored") from error
        except BusError as error:
            raise Problem(503, "kafka_error", str(error)) from error
        except FeedConflict as error:
            raise Problem(409, error.reason, str(error)) from error
        except FeedLimitReached as error:
            raise Problem(429, "quota_exceeded", str(error)) from error


def _part(request: web.BaseRequest, number: int) -> str:
    """A part of the path, decoded once. Raises Problem 400."""
    return decode_percent(request.rel_url.raw_path.split("/")[number], "the path")


def _feed(request: web.BaseRequest) -> str:
    feed = _part(request, _FEED)
    if FEED_NAME.fullmatch(feed) is None:
        raise bad_request("malformed_feed", "a feed's name must have 1 to 100 letters, digits and - . _")
    return feed


def _may_read(caller: Caller, feed: str) -> bool:
    return caller.rules.subscribe(f"feeds/{feed}/#") is ReasonCode.SUCCESS
