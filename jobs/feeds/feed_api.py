"""A gateway's `/v1/feeds` over HTTP. It follows neither proxies nor redirects: credentials go to the named address."""

import base64
import json
import ssl
from http.client import HTTPException
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import msgspec

from jobs.errors import FeedCommandError
from schemas.feed_api import FEEDS_PATH, BrokeredPair, FeedAssignment, FeedDetail, FeedList
from schemas.feed_words import Slot
from schemas.undecodable import UNDECODABLE

TIMEOUT_S = 10.0

T = TypeVar("T")


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class FeedApi(NamedTuple):
    """`url` without a path; `credentials`: user and password, if any; `tls` for https."""

    url: str
    credentials: tuple[str, bytes] | None = None
    tls: ssl.SSLContext | None = None

    def feeds(self) -> FeedList:
        """Raises FeedCommandError, as all these do."""
        return self._ask("GET", "", FeedList)

    def feed(self, feed: str) -> FeedDetail:
        return self._ask("GET", f"/{quote(feed, safe='')}", FeedDetail)

    def switch(self, feed: str, slot: Slot, reason: str) -> FeedAssignment:
        body = {"active": slot, "reason": reason}
        return self._ask("POST", f"/{quote(feed, safe='')}/switch", FeedAssignment, body)

    def subscribe(self, feed: str, name: str, mode: str) -> BrokeredPair:
        body = {"subscriber": name, "mode": mode}
        return self._ask("POST", f"/{quote(feed, safe='')}/subscribers", BrokeredPair, body)

    def unsubscribe(self, feed: str, name: str) -> None:
        self._send("DELETE", f"/{quote(feed, safe='')}/subscribers/{quote(name, safe='')}", None)

    def _ask(self, method: str, path: str, kind: type[T], body: Any = None) -> T:
        try:
            return msgspec.json.decode(self._send(method, path, body), type=kind)
        except UNDECODABLE as error:
            raise FeedCommandError(
                f"the gateway at {self.url} answered something else than expected: {error}"
            ) from error

    def _send(self, method: str, path: str, body: Any) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{FEEDS_PATH}{path}", data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.credentials is not None:
            user, password = self.credentials
            request.add_header("Authorization", "Basic " + base64.b64encode(user.encode() + b":" + password).decode())
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self.tls), _NoRedirect)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            with error:
                raise FeedCommandError(_refusal(self.url, error.read(), error)) from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise FeedCommandError(
                f"the gateway at {self.url} does not answer: {reason}; check `waystation status`, or name another "
                "gateway with --address"
            ) from error


def _refusal(url: str, body: bytes, error: HTTPError) -> str:
    try:
        sentence = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        sentence = f"{error.code} {error.reason}"
    return f"the gateway at {url} refused the request: {sentence}"
