"""Who may use the admin API and the console of this gateway (:mod:`schemas.operator_access`): each request is checked,
refusals are counted and logged."""

import asyncio
from collections import Counter

import structlog
from aiohttp import web

from schemas.operator_access import ADMIN_API, Refusal, TokenError, read_token, refusal

log = structlog.get_logger(__name__)


class AdminAccess:
    """Checks requests. `token_file` is "" if no token is required. Raises TokenError if the file holds no token."""

    def __init__(self, token_file: str, counts: Counter[str]) -> None:
        self._token_file = token_file
        self._counts = counts
        self._said_at = float("-inf")
        if token_file:
            read_token(ADMIN_API.setting, token_file)

    @property
    def requires_token(self) -> bool:
        """Whether whoever is let in has shown the token."""
        return bool(self._token_file)

    def check(self, request: web.Request, *, takes_basic: bool = False) -> Refusal | None:
        """Why a request is refused, or None if it is allowed. With `takes_basic` the token may be the password of a
        Basic header, which a browser asks its user for; its first request has none, and is not counted."""
        try:
            token = read_token(ADMIN_API.setting, self._token_file) if self._token_file else None
        except TokenError as error:
            log.error("the admin API refuses all requests", reason=str(error))
            return Refusal(503, "the gateway cannot read the token of the admin API; its log says why")
        refused = refusal(ADMIN_API, token, request.headers, request.remote or "", takes_basic=takes_basic)
        is_question = takes_basic and token is not None and "Authorization" not in request.headers
        if refused is not None and not is_question:
            self._note(request, refused.status)
        return refused

    def _note(self, request: web.Request, status: int) -> None:
        """Counts every refusal; logs at most one per second."""
        self._counts["admin_refused"] += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= 1:
            self._said_at = now
            log.warning("admin request refused", peer=request.remote, status=status)
