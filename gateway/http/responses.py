"""Answers that carry JSON, and answers without a known length."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web


def json_response(content: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")


def unbounded_response(request: web.BaseRequest, headers: Mapping[str, str], status: int = 200) -> web.StreamResponse:
    """An answer that is written as it comes. HTTP/1.0 has no chunks, so there the end of the connection ends it (RFC
    9112, 6.3), also if the client wants to keep the connection: aiohttp would keep it, and the client would wait."""
    response = web.StreamResponse(status=status, headers=headers)
    if request.version < HttpVersion11:
        response.force_close()
    return response
