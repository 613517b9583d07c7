"""The events of a feed as a stream of server-sent events: its state at once, then each change (S1).

An id is `<gateway's process>-<number>`. Who resumes with one gets the changes since; with one that is another
gateway's, or too old, the current state. A slow client gets the current state instead of changes that are no longer
kept.
"""

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from gateway.feeds.service import FeedService
from gateway.http.identity import Caller
from gateway.http.responses import unbounded_response
from gateway.http.stream_events import RETRY_MS, EventId, comment, end_event
from gateway.http.streams import STREAM_HEADERS
from mqtt.codes import ReasonCode
from schemas.http_settings import HttpSettings


class FeedStream:
    """One stream, of which the gateway ends what `end` is called for. `clock` gives seconds since the epoch."""

    def __init__(
        self, service: FeedService, feed: str, caller: Caller, settings: HttpSettings, clock: Callable[[], float]
    ) -> None:
        self._service = service
        self._feed = feed
        self._caller = caller
        self._settings = settings
        self._clock = clock
        self._ended: ReasonCode | None = None

    def end(self, reason: ReasonCode) -> None:
        """The stream ends with a last event."""
        self._ended = reason
        self._service.events.wake(self._feed)

    async def serve(
        self, request: web.BaseRequest, last: EventId | None, wait_s: float | None, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Streams until either side ends, or for `wait_s`; after `last`, if its changes are known."""
        response = unbounded_response(request, {**STREAM_HEADERS, **headers})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        until = None if wait_s is None else loop.time() + wait_s
        events, feed = self._service.events, self._feed
        try:
            await self._write(response, f"retry: {RETRY_MS}\n\n".encode())
            number = last.number if last is not None and last.window == events.name else -1
            while True:
                number = await self._write_since(response, number)
                if self._ended is not None:
                    await self._write(response, end_event(self._ended.name.lower()))
                    return response
                left_s = self._settings.heartbeat_s if until is None else until - loop.time()
                if left_s <= 0:
                    return response
                left_s = min(left_s, self._settings.heartbeat_s, max(0.0, self._caller.rules.until - self._clock()))
                is_woken = await events.wait(feed, number, left_s)
                self._check_right()
                if not is_woken and self._ended is None:
                    await self._write(response, comment("nothing new"))
        except TimeoutError:  # the client does not read: unsent data would keep the connection open
            if request.transport is not None:
                request.transport.abort()
        return response

    def _check_right(self) -> None:
        rules = self._caller.rules
        is_allowed = rules.subscribe(f"feeds/{self._feed}/#") is ReasonCode.SUCCESS
        if not is_allowed or rules.until <= self._clock():
            self._ended = self._ended or ReasonCode.NOT_AUTHORIZED

    async def _write_since(self, response: web.StreamResponse, number: int) -> int:
        """Writes what has happened since `number`, or the state; returns the number up to which the client knows."""
        events, feed = self._service.events, self._feed
        changes = None if number < 0 else events.since(feed, number)
        last = events.last(feed)
        if changes is None:
            await self._write(response, _event("state", events.name, last, self._service.state(feed)))
            return last
        first = last - len(changes) + 1
        for at, change in enumerate(changes, first):
            await self._write(response, _event("change", events.name, at, change))
        return last

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Raises TimeoutError if the client does not read for too long, ConnectionError if it has left."""
        async with asyncio.timeout(self._settings.write_timeout_s):
            await response.write(data)


def _event(kind: str, name: str, number: int, content: msgspec.Struct) -> bytes:
    head = f"id: {EventId(name, number)}\nevent: {kind}\n".encode()
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(content))
