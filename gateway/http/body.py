"""Reads a request's body, with limits on size and time."""

import asyncio

from aiohttp import HttpVersion11, web

from gateway.http.problems import Problem

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def read_body(request: web.BaseRequest, most: int, timeout_s: float) -> bytes:
    """Raises Problem: 408 too slow, 413 too large, 417 an expectation other than 100-continue, 400 badly chunked."""
    too_large = Problem(413, "packet_too_large", f"the body is larger than {most} bytes", close=True)
    if (request.content_length or 0) > most:
        raise too_large
    await _continue(request)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError as error:
        raise Problem(408, "body_timeout", f"the body did not arrive within {timeout_s:g} s", close=True) from error
    except web.RequestPayloadError as error:
        raise Problem(400, "malformed_body", "the body is malformed", close=True) from error
    return bytes(body)


async def read_json_body(request: web.BaseRequest, most: int, timeout_s: float) -> bytes:
    """The same for JSON, not parsed; Problem 415 for another content type."""
    if request.content_type != "application/json":
        raise Problem(415, "content_type", "the body must be application/json")
    return await read_body(request, most, timeout_s)


async def _continue(request: web.BaseRequest) -> None:
    """Sends 100 Continue to a client that waits for it before it sends the body (RFC 9110, 10.1.1)."""
    expectation = request.headers.get("Expect")
    if expectation is None or request.version < HttpVersion11:  # not part of HTTP/1.0
        return
    if expectation.lower() != "100-continue":
        raise Problem(417, "expectation", "the only supported expectation is 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0
