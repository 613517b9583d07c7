"""What the requests of the admin API have in common: their parameters and the form of the answers."""

from typing import Any

import msgspec
from aiohttp import web


class BadRequest(ValueError):
    """The request is invalid; the text says how to correct it."""


def parameters(request: web.Request, *known: str) -> dict[str, str]:
    """The query. Raises BadRequest if it has any that is not `known`."""
    unknown = sorted(set(request.query) - set(known))
    if unknown:
        raise BadRequest(f"unknown parameter {unknown[0]!r}; allowed: {', '.join(known) or 'none'}")
    return dict(request.query)


def answer(content: Any, status: int = 200) -> web.Response:
    """An answer in JSON."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        body=msgspec.json.encode(content), status=status, headers=headers, content_type="application/json"
    )


def refusal(sentence: str, status: int) -> web.Response:
    return answer({"error": sentence}, status)
