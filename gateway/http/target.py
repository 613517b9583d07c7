"""Decodes a request's target, once and exactly: percent-encoded UTF-8, and `+` for a space only in the query (RFC 3986,
2.1; WHATWG URL, application/x-www-form-urlencoded)."""

import re
from urllib.parse import unquote_to_bytes

from aiohttp import web

from gateway.http.problems import bad_request

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def decode_percent(text: str, where: str) -> str:
    """The text; raises Problem 400 for a broken escape, bytes that are not UTF-8, or non-ASCII characters."""
    if not text.isascii():
        raise bad_request("malformed_encoding", f"{where}: write non-ASCII characters as percent-encoded UTF-8")
    if _BROKEN_ESCAPE.search(text):
        raise bad_request("malformed_encoding", f"{where}: a % is not followed by two hexadecimal digits; write %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise bad_request("malformed_encoding", f"{where}: the percent-encoded bytes are not UTF-8") from error


def raw_tail(request: web.BaseRequest) -> str:
    """The path behind `/v1/messages/` or the like, still encoded.

    `match_info` has it decoded, but leniently: `%FF` (not UTF-8) and `%25FF` look the same there.
    """
    return request.rel_url.raw_path.split("/", 3)[3]


class Query:
    """The parameters of a query. Handlers take the ones they know; `done` refuses what is left."""

    def __init__(self, raw: str) -> None:
        self._found: dict[str, list[tuple[str, str]]] = {}
        for part in raw.split("&"):
            if part:
                name, _, value = part.partition("=")
                decoded = decode_percent(value.replace("+", "%20"), "the query")
                self._found.setdefault(decode_percent(name, "the query"), []).append((value, decoded))

    def take(self, name: str) -> str | None:
        """The value of a parameter that may occur at most once; raises Problem 400."""
        values = self._found.pop(name, [])
        if len(values) > 1:
            raise bad_request("repeated_parameter", f"the parameter {name} occurs {len(values)} times: send it once")
        return values[0][1] if values else None

    def take_filters(self, name: str) -> list[str]:
        """The topic filters in a parameter that may be repeated.

        Raises Problem 400 if a level is an unencoded `+`: in a query it is a space, but its author meant the wildcard.
        """
        values = self._found.pop(name, [])
        for raw, _ in values:
            if "+" in raw.replace("%2F", "/").replace("%2f", "/").split("/"):
                raise bad_request("ambiguous_filter", "in a query + is a space: write the wildcard as %2B")
        return [decoded for _, decoded in values]

    def done(self, known: tuple[str, ...]) -> None:
        """Raises Problem 400 if a parameter is left; names it and the `known` ones."""
        for name in self._found:
            listed = f"allowed: {', '.join(known)}" if known else "none is allowed"
            raise bad_request("unknown_parameter", f"unknown parameter {name[:64]!r}; {listed}")


def query_of(request: web.BaseRequest) -> Query:
    return Query(request.rel_url.raw_query_string)
