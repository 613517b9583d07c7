"""All replies to one request, as server-sent events (R6).

A reply is an event `message` as in an event stream, without an id: it is acknowledged once it is written, and does not
come again. The last event is `end`: `reason` says whether the time was over (`timeout`), as many replies have come as
were asked for (`most`), as many as clients have got the request (`complete`), or why the gateway has ended it.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from gateway.http.reply_format import end_event, too_large_event
from gateway.http.reply_link import Reply, ReplyLink, TooLarge
from gateway.http.responses import unbounded_response
from gateway.http.stream_events import comment, message_event
from gateway.http.streams import STREAM_HEADERS
from schemas.http_settings import HttpSettings


class ReplyStream:
    """Writes what comes to `link` until `most` replies are written, None for no limit, or until `until` by the loop's
    clock. `clock` gives seconds since the epoch."""

    def __init__(
        self, link: ReplyLink, settings: HttpSettings, clock: Callable[[], float], most: int | None, until: float
    ) -> None:
        self._link, self._settings, self._clock = link, settings, clock
        self._most, self._until = most, until
        self.replies = 0
        """Written so far."""
        self.result = "left"
        """How the request has ended, for the metrics, once it has."""

    async def serve(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """The response, with `headers` besides, once it is written. Raises ConnectionError if the requester leaves."""
        response = unbounded_response(request, {**STREAM_HEADERS, **headers})
        try:
            await self._begin(request, response)
            while (reason := await self._write_some(response)) is None:
                pass
            await self._write(response, end_event(reason, self.replies, self._link.receivers))
            unanswered = "no_reply" if self._link.ended is None else "ended"
            self.result = "answered" if self.replies else unanswered
        except TimeoutError:  # the client does not read: unsent data would keep the connection open
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _begin(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        async with asyncio.timeout(self._settings.write_timeout_s):
            await response.prepare(request)
            await response.write(comment("the request is sent"))

    async def _write_some(self, response: web.StreamResponse) -> str | None:
        """Writes replies that have come, or a comment if none comes for long. Returns why the stream is over, None
        while it is not."""
        now = asyncio.get_running_loop().time
        found = await self._link.take(min(now() + self._settings.heartbeat_s, self._until))
        if found:
            at = self._clock()
            await self._write(response, b"".join([_event(reply, at) for reply in found]))
            self._link.acknowledge(found)
            self.replies += sum(isinstance(reply, Reply) for reply in found)
        elif self._link.ended is not None:
            return self._link.ended.name.lower()
        if self.replies == self._most:
            return "most"
        if self._link.is_complete:
            return "complete" if self._link.receivers else "not_received"
        if now() >= self._until:
            return "timeout"
        if not found:
            await self._write(response, comment("nothing new"))
        return None

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._settings.write_timeout_s):
            await response.write(data)


def _event(reply: Reply | TooLarge, now: float) -> bytes:
    if isinstance(reply, TooLarge):
        return too_large_event(reply.message_id, reply.size)
    return message_event(reply.message, reply.delivery.qos, False, None, now)
