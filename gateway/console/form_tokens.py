"""Protects forms of the console against requests that another site makes a browser send (CSRF).

A browser adds Basic credentials to requests by itself, so those do not show who wanted a request. Two things do: its
`Origin`, which only the browser sets, and a token that only a page of this process contains. Both must be right.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit


class FormTokens:
    """Makes and checks tokens; a token holds for one path, until the process ends."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make(self, path: str) -> str:
        """`path` with its query, as the form has it."""
        return hmac.new(self._key, path.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()

    def is_valid(self, path: str, token: str) -> bool:
        return hmac.compare_digest(self.make(path).encode(), token.encode(errors="replace"))


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a page of the host that the request went to has sent it. A request without `Origin` is not."""
    try:
        origin = urlsplit(headers.get("Origin", ""))
    except ValueError:
        return False
    if origin.scheme not in ("http", "https") or not origin.netloc:
        return False
    return origin.netloc == headers.get("Host", "") and headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
