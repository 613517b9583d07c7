"""Reads the bodies of requests, with limits on the size and time of each, and on all that arrive at a time.

A body may take long over a slow link, as long as it goes on: something must come within `read_timeout_s`, and all of it
at `body_bytes_per_s` on average, not counting the first `read_timeout_s`. So who sends a byte now and then is let go.
"""

import asyncio
from typing import Final

from aiohttp import HttpVersion11, web

from gateway.http.problems import Problem
from schemas.http_settings import HttpSettings

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FREE_BYTES: Final = 16_384
"""The first bytes of a body, which do not count in `arriving_bytes`: small requests go on while large ones fill it."""


class BodyReader:
    """Owns how many bytes of bodies are arriving. What has come counts, not what a request announces, so that a slow
    sender holds no more than it has sent, and that for `read_timeout_s` and one second per `body_bytes_per_s` of it."""

    def __init__(self, settings: HttpSettings) -> None:
        self._most_arriving = settings.arriving_bytes
        self._timeout_s, self._bytes_per_s = settings.read_timeout_s, settings.body_bytes_per_s
        self.arriving = 0

    async def read(self, request: web.BaseRequest, most: int) -> bytes:
        """A body of at most `most` bytes. Raises Problem: 408 too slow, 413 too large, 417 an expectation other than
        100-continue, 400 badly chunked, 503 too many bytes of bodies arrive at a time."""
        too_large = Problem(413, "packet_too_large", f"the body is larger than {most} bytes", close=True)
        if (request.content_length or 0) > most:
            raise too_large
        await _continue(request)
        body = bytearray()
        counted = 0
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._timeout_s  # when the body must be complete, if nothing more came
        try:
            async with asyncio.timeout_at(latest) as limit:
                async for chunk in request.content.iter_any():
                    if len(body) + len(chunk) > most:
                        raise too_large
                    more = max(0, len(body) + len(chunk) - FREE_BYTES) - counted
                    self._check_capacity(more)
                    self.arriving += more
                    counted += more
                    body += chunk
                    latest += len(chunk) / self._bytes_per_s
                    limit.reschedule(min(latest, loop.time() + self._timeout_s))
        except TimeoutError as error:
            detail = (
                f"the body came too slowly: nothing for {self._timeout_s:g} s, or less than {self._bytes_per_s} bytes "
                "per second"
            )
            raise Problem(408, "body_timeout", detail, close=True) from error
        except web.RequestPayloadError as error:
            raise Problem(400, "malformed_body", "the body is malformed", close=True) from error
        finally:
            self.arriving -= counted
        return bytes(body)

    async def read_json(self, request: web.BaseRequest, most: int) -> bytes:
        """The same for JSON, not parsed; Problem 415 for another content type."""
        if request.content_type != "application/json":
            raise Problem(415, "content_type", "the body must be application/json")
        return await self.read(request, most)

    def _check_capacity(self, more: int) -> None:
        if more and self.arriving + more > self._most_arriving:
            raise Problem(
                503,
                "too_many_bytes_at_once",
                "too many large bodies arrive at the same time; nothing was done, try again",
                close=True,
            )


async def _continue(request: web.BaseRequest) -> None:
    """Sends 100 Continue to a client that waits for it before it sends the body (RFC 9110, 10.1.1)."""
    expectation = request.headers.get("Expect")
    if expectation is None or request.version < HttpVersion11:  # not part of HTTP/1.0
        return
    if expectation.lower() != "100-continue":
        raise Problem(417, "expectation", "the only supported expectation is 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0
