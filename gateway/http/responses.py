"""Answers that carry JSON."""

from typing import Any

import msgspec
from aiohttp import web


def json_response(content: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")
