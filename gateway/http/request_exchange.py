"""Serves requests at the gateway that has their reply inboxes: publishes, waits, answers (R6; MQTT 5.0, 4.10).

A request is served in these steps:

1. A session without expiry attaches, whose client id is the reply address (:mod:`gateway.http.reply_address`). Nothing
   of it is written to Kafka, and presence does not report it.
2. The message is published for the caller, with the session's inbox as Response Topic, and Correlation Data. It expires
   when the request's time is over, so that nobody answers in vain.
3. Replies come to the session and wait in its link (:mod:`gateway.http.reply_link`) until they are written.
4. Without a reply in time it is sent again, if the requester wants that: to the next receiver of a share group.
5. The ledger sends a receipt there too (Q13): that nobody has got the request, or how many have got it.
6. Whatever ends the request ends the session. The home drops what comes to an inbox without a session, so late replies
   take no memory.

The session attaches before the message is published, so that no reply comes too early. When the shard moves, when the
gateway stops, or when the same request is made again with its key, the home ends the session, and the requester is told
why.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
from aiohttp import web

from gateway.host.authenticator import NotAdmitted
from gateway.host.host_server import HostServer
from gateway.http.attaching import attached
from gateway.http.http_publisher import HttpPublisher, Stored
from gateway.http.identity import Caller
from gateway.http.problems import AGAIN, NO_HEADERS, Problem, refusal
from gateway.http.reply_address import ReplyAddress
from gateway.http.reply_format import REQUEST_ID, reply_headers
from gateway.http.reply_link import Reply, ReplyLink, TooLarge
from gateway.http.reply_stream import ReplyStream
from gateway.http.requested import Requested
from gateway.shard.arrivals import REPLY_INBOX, Arrival
from gateway.shard.asked_receipts import AskedReceipt
from gateway.shard.rules import FOR_EVER
from gateway.shard.shard_home import Attached
from mqtt.codes import ReasonCode
from schemas.http_settings import HttpSettings
from schemas.identity import inbox_of

REPLAYED: Final = "Idempotency-Replayed"
_RESULTS: Final = frozenset({"no_reply", "not_received", "reply_too_large"})
"""Reasons of problems that the metrics count as results of their own."""

log = structlog.get_logger(__name__)


class RequestExchange:
    """All requests that one gateway serves."""

    def __init__(self, hosts: HostServer, settings: HttpSettings, publisher: HttpPublisher) -> None:
        self._hosts = hosts
        self._settings = settings
        self._publisher = publisher
        self._links: set[ReplyLink] = set()
        self._is_stopping = False

    def stop(self) -> None:
        """Ends every request with the reason that the gateway is shutting down, also those that are still to come."""
        self._is_stopping = True
        for link in self._links:
            link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    async def serve(
        self,
        request: web.BaseRequest,
        caller: Caller,
        asked: Requested,
        address: ReplyAddress,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        """The response, already written, with `headers` besides. Raises Problem, also if the one reply does not come;
        NotAdmitted if a shard that it needs is not here; ConnectionError if the requester leaves or does not read."""
        link = ReplyLink(self._hosts, address.correlation, self._settings.reply_bytes, asked.most)
        self._links.add(link)
        ending, result = None, "left"
        try:
            await attached(
                self._hosts,
                caller.client,
                self._attach(link, caller, address.client),
                "request",
                self._settings.kafka_timeout_s,
                "the inbox for replies was not there in time; nothing was sent",
            )
            if self._is_stopping:
                link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
            if link.ended is not None:
                raise _ended(link.ended, "nothing was sent, try again")
            if caller.rules.until < FOR_EVER:
                left_s = caller.rules.until - self._hosts.clock()
                ending = asyncio.get_running_loop().call_later(left_s, link.disconnect, ReasonCode.NOT_AUTHORIZED)
            until = asyncio.get_running_loop().time() + asked.timeout_s
            packet = asked.posted.packet
            assert packet.properties is not None
            packet.properties["response_topic"] = inbox_of(address.client)
            packet.properties["correlation_data"] = address.correlation
            receipt = AskedReceipt("completed" if asked.wants_all else "failed", address.correlation, address.client)
            stored = await self._publisher.publish(caller, asked.posted._replace(receipt=receipt))
            headers = headers | _about(stored)
            if asked.wants_all:
                stream = ReplyStream(link, self._settings, self._hosts.clock, asked.most, until)
                response = await stream.serve(request, headers)
                result = stream.result
            else:
                replies = await self._first_reply(caller, link, asked, until)
                response = await self._answer(request, link, replies, stored, asked, headers)
                result = "answered"
            return response
        except NotAdmitted:
            result = "refused"
            raise
        except Problem as problem:
            otherwise = "refused" if link.ended is None else "ended"
            result = problem.reason if problem.reason in _RESULTS else otherwise
            raise
        finally:
            self._hosts.counts[f"request_{result}"] += 1
            self._links.discard(link)
            if ending is not None:
                ending.cancel()
            link.leave()

    async def _first_reply(
        self, caller: Caller, link: ReplyLink, asked: Requested, until: float
    ) -> Sequence[Reply | TooLarge]:
        """Nothing if none comes. Sends the request again meanwhile, as `asked`."""
        now, again_after_s = asyncio.get_running_loop().time, asked.again_after_s or math.inf
        while True:
            next_at = min(until, now() + again_after_s)
            replies = await link.take(next_at)
            if replies or link.ended is not None or link.is_complete or now() >= until:
                return replies
            with suppress(Problem):  # the next one may be taken again, and the first one may still be answered
                await self._publisher.publish(caller, asked.again(until - now()))
                self._hosts.counts["repeated_requests"] += 1

    async def _answer(
        self,
        request: web.BaseRequest,
        link: ReplyLink,
        replies: Sequence[Reply | TooLarge],
        stored: Stored,
        asked: Requested,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        """The first of `replies`."""
        if not replies and link.receivers == 0:
            raise Problem(404, "not_received", "nobody has got the request", headers=_about(stored))
        if not replies:
            raise _unanswered(link.ended, asked, stored)
        first = replies[0]
        if isinstance(first, TooLarge):
            raise _too_large(f"the reply has {first.size} bytes; allowed: {self._settings.reply_bytes}")
        fields = reply_headers(first.message, self._settings.header_bytes, self._settings.header_fields)
        if fields is None:
            raise _too_large("the user properties of the reply do not fit into headers; replies=all has them")
        fields.update(headers)
        response = web.StreamResponse(headers=fields)
        response.content_length = len(first.message.payload)
        try:
            async with asyncio.timeout(self._settings.write_timeout_s):
                await response.prepare(request)
                await response.write(first.message.payload)
                await response.write_eof()
        except TimeoutError as error:  # the client does not read: unsent data would keep the connection open
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from error
        link.acknowledge([first])
        return response

    async def _attach(self, link: ReplyLink, caller: Caller, client: str) -> Attached | Problem:
        if not self._hosts.home.has_capacity(client):
            return refusal(ReasonCode.QUOTA_EXCEEDED)
        window = self._settings.stream_window
        arrival = Arrival(client, True, 0, None, window, caller.peer, REPLY_INBOX, caller.rules)
        session = await self._hosts.home.attach(arrival, link)
        link.attach(session)
        return session


def _too_large(detail: str) -> Problem:
    return Problem(502, "reply_too_large", detail)


def _unanswered(ended: ReasonCode | None, asked: Requested, stored: Stored) -> Problem:
    """Why a request that was sent has no reply. `ended`: why the gateway has ended it, None if its time is over."""
    if ended is not None:
        return _ended(ended, AGAIN, _about(stored))
    detail = f"no reply within {asked.timeout_s} s"
    if stored.replayed:
        detail += "; the request was sent before, with this key, and an earlier reply is not kept"
    return Problem(504, "no_reply", detail, headers=_about(stored))


def _ended(ended: ReasonCode, again: str, headers: Mapping[str, str] = NO_HEADERS) -> Problem:
    """The gateway has ended the request; `again` says whether it may be repeated."""
    match ended:
        case ReasonCode.SERVER_SHUTTING_DOWN:
            status, reason, detail = 503, "server_shutting_down", f"the gateway is being stopped; {again}"
        case ReasonCode.SESSION_TAKEN_OVER:
            status, reason, detail = 409, "asked_again", "the same request was made again, and waits instead"
        case ReasonCode.NOT_AUTHORIZED:
            status, reason, detail = 403, "not_authorized", "the credentials are no longer valid"
        case ReasonCode.ADMINISTRATIVE_ACTION:
            status, reason, detail = 503, "administrative_action", f"an operator has ended the request; {again}"
        case _:
            status, reason, detail = 503, "server_moved", f"another gateway has the inbox for replies now; {again}"
    return Problem(status, reason, detail, headers=headers)


def _about(stored: Stored) -> dict[str, str]:
    """Headers of every answer to a request that was sent."""
    return {REQUEST_ID: stored.message_id} | ({REPLAYED: "true"} if stored.replayed else {})
