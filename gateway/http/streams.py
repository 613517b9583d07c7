"""Event streams: each gets the home's session for its client id (G8, G9, G11)."""

import asyncio
import math
import re
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import structlog
from aiohttp import web

from gateway.host.host_server import HostServer
from gateway.http import attaching
from gateway.http.event_window import StreamWindow
from gateway.http.identity import Caller
from gateway.http.problems import Problem, bad_request, refusal, refused_filters
from gateway.http.responses import unbounded_response
from gateway.http.stream_events import RETRY_MS, EventId
from gateway.http.stream_link import Pace, StreamLink
from gateway.http.target import Query
from gateway.shard.arrivals import Arrival
from gateway.shard.rules import FOR_EVER
from gateway.shard.session import Session
from gateway.shard.shard_home import Attached
from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe, Subscription, Unsubscribe
from mqtt.topics import is_topic_filter
from schemas.http_settings import HttpSettings

PARAMETERS: Final = ("acknowledge", "client", "filter", "qos", "wait")
WAIT_MAX_S: Final = 86_400
_NUMBER = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?([eE]-?[0-9]{1,3})?")
_ONLY_IF_NEW = 1
CLIENT_ID_HEADER: Final = "X-Client-Id"
"""In the answer: the client id by which the home knows the client, so its inbox is `@` and this."""

STREAM_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

log = structlog.get_logger(__name__)


class StreamRequest(NamedTuple):
    """A requested stream. `acknowledges`: the gateway does it for the client; `wait_s`: None for no end."""

    filters: list[str]
    qos: int
    acknowledges: bool | None
    wait_s: float | None
    last_event: EventId | None


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a POST to `/v1/stream/ack`."""

    last_event_id: str


def stream_request(query: Query, last_event_id: str | None) -> StreamRequest:
    """Raises Problem 400. The parameter `client` is taken already."""
    filters = list(dict.fromkeys(query.take_filters("filter")))
    for topic_filter in filters:
        if not is_topic_filter(topic_filter):
            raise bad_request(
                "topic_filter_invalid",
                "a filter is not valid: + must be alone on its level, # alone and last; no U+0000",
            )
    qos = query.take("qos") or "1"
    acknowledge, wait = query.take("acknowledge"), query.take("wait")
    query.done(PARAMETERS)
    if qos not in ("0", "1"):
        raise bad_request("malformed_parameter", "qos must be one of: 0, 1")
    if acknowledge not in (None, "client", "written"):
        raise bad_request("malformed_parameter", "acknowledge must be one of: client, written")
    return StreamRequest(
        filters,
        int(qos),
        None if acknowledge is None else acknowledge == "written",
        None if wait is None else wait_seconds(wait),
        None if last_event_id is None else event_id(last_event_id),
    )


def event_id(text: str) -> EventId:
    """Raises Problem 400."""
    parsed = EventId.parse(text)
    if parsed is None:
        raise bad_request("malformed_event_id", "this is not an event id: send one as it came in a stream")
    return parsed


def wait_seconds(text: str) -> float:
    """The parameter `wait` of a stream. Raises Problem 400."""
    seconds = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not 0 < seconds <= WAIT_MAX_S:
        raise bad_request("malformed_parameter", f"wait must be a number of seconds above 0, up to {WAIT_MAX_S}")
    return seconds


class Streams:
    """All open streams of a gateway."""

    def __init__(self, server: HostServer, settings: HttpSettings) -> None:
        self._server = server
        self._home = server.home
        self._settings = settings
        self._expiry_s = min(settings.stream_expiry_s, server.limits.session_expiry_s)
        self._links: set[StreamLink] = set()
        self._wanted: WeakKeyDictionary[Session, list[str]] = WeakKeyDictionary()
        """The filters of the stream that has come last, however far others are with theirs."""
        self._windows: WeakKeyDictionary[Session, StreamWindow] = WeakKeyDictionary()

    def check(self, caller: Caller, asked: StreamRequest, elsewhere: int = 0) -> None:
        """Raises Problem 403 for a filter that is not allowed, 503 if too many streams are open, with the `elsewhere`
        that other gateways serve."""
        problem = refused_filters(asked.filters, [caller.rules.subscribe(one) for one in asked.filters])
        if problem is not None:
            raise problem
        if len(self._links) + elsewhere >= self._settings.streams:
            raise Problem(503, "too_many_streams", "too many event streams are open; try again later")

    async def serve(
        self, request: web.BaseRequest, caller: Caller, asked: StreamRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Answers once the session is attached and has exactly the requested subscriptions; then streams until either
        side ends.

        Raises Problem before that: 403, 429, 503.
        """
        self.check(caller, asked)
        acknowledges = not caller.is_known if asked.acknowledges is None else asked.acknowledges
        limits, settings = self._server.limits, self._settings
        link = StreamLink(self._server, limits.write_buffer_bytes, settings.stream_window, acknowledges)
        self._links.add(link)
        is_refused, ending = True, None
        try:
            attached = await attaching.attached(
                self._server,
                caller.client,
                self._attach(link, caller, asked),
                "stream",
                self._settings.kafka_timeout_s,
                "Kafka did not store the session or a subscription in time; try again",
            )
            is_refused = False
            named = {CLIENT_ID_HEADER: caller.client} if caller.is_known else {}
            response = unbounded_response(request, {**STREAM_HEADERS, **named, **headers})
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            self._server.counts["streams_opened"] += 1
            if attached.session.link is link:  # otherwise another stream has taken over meanwhile
                link.open(self._resumed(attached, asked.last_event))
            loop = asyncio.get_running_loop()
            until = None if asked.wait_s is None else loop.time() + asked.wait_s
            if caller.rules.until < FOR_EVER:
                left_s = caller.rules.until - self._server.clock()
                ending = loop.call_later(left_s, link.disconnect, ReasonCode.NOT_AUTHORIZED)
            await link.write_to(response, Pace(settings.heartbeat_s, settings.write_timeout_s, until))
        except TimeoutError:  # the client does not read: unsent data would keep the connection open
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._links.discard(link)
            if ending is not None:
                ending.cancel()
            reason = link.leave(is_refused=is_refused)
            if not is_refused:
                self._server.counts[f"closed_{reason}"] += 1
        return response

    def acknowledge(self, client: str, last: EventId) -> None:
        """The client has all events up to `last`. Raises Problem 404, 409."""
        home = self._home.home_of(client)
        session = home.sessions.get(client)
        window = self._windows.get(session) if session is not None else None
        if session is None or window is None:
            raise Problem(404, "no_stream", "this client has no stream, or its session has ended")
        if not window.knows(last):
            raise Problem(
                409, "unknown_event", "the event id is from an earlier session; its events are delivered again"
            )
        window.acknowledge(home, session, last.number)

    def stop(self) -> None:
        """Ends every stream with the reason that the gateway is shutting down."""
        for link in self._links:
            link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    def _resumed(self, attached: Attached, last: EventId | None) -> StreamWindow:
        session = attached.session
        window = self._windows.setdefault(session, StreamWindow())
        if last is not None and window.knows(last):
            window.acknowledge(attached.home, session, last.number)
        return window

    async def _attach(self, link: StreamLink, caller: Caller, asked: StreamRequest) -> Attached | Problem:
        if not self._home.has_capacity(caller.client):
            return refusal(ReasonCode.QUOTA_EXCEEDED)
        expiry_s = self._expiry_s if caller.is_known else 0
        arrival = Arrival(
            caller.client, False, expiry_s, None, self._settings.stream_window, caller.peer, "http", caller.rules
        )
        attached = await self._home.attach(arrival, link)
        link.attach(attached)
        session, codes = attached.session, list[ReasonCode]()
        self._wanted[session] = asked.filters
        if asked.filters:
            wanted = [Subscription(f, asked.qos, retain_handling=_ONLY_IF_NEW) for f in asked.filters]
            await attached.home.subscribe(session, Subscribe(1, wanted), codes.extend)
        problem = refused_filters(asked.filters, codes)
        if problem is not None:
            return problem
        unlisted = [known for known in session.subscriptions if known not in self._wanted[session]]
        if unlisted:
            await attached.home.unsubscribe(session, Unsubscribe(1, unlisted))
        return attached
