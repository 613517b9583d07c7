"""A gateway's admin API and readiness over HTTP: everything that the command line asks of gateways.

It follows neither proxies nor redirects: the token goes to the named address, and nowhere else.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from jobs.errors import GatewayApiError, GatewayUnreachable
from jobs.output import errors

TIMEOUT_S = 5.0
PAGE = 1_000
_NOT_SERVING = 503
"""A gateway that is starting or being stopped answers so."""
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


Found = TypeVar("Found")


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(ProxyHandler({}), _NoRedirect)


class GatewayApi(NamedTuple):
    """`url` without a path, for example `http://127.0.0.1:9464`; `token` is "" if none is required; `name`: of the
    gateway, "" if it is not known."""

    url: str
    token: str = ""
    name: str = ""

    def sessions(self, prefix: str = "", state: str = "", most: int = PAGE) -> tuple[list[dict[str, Any]], int]:
        """Up to `most` sessions ordered by client id, and how many there are. Raises GatewayApiError."""
        found: list[dict[str, Any]] = []
        after, total = "", 0
        while len(found) < most:
            asked = {"prefix": prefix, "state": state, "after": after, "limit": str(min(PAGE, most - len(found)))}
            answer = self._ask("GET", "/admin/sessions", asked)
            found += answer["sessions"]
            total = answer["total"]
            if answer["next"] is None:
                break
            after = answer["next"]
        return found, total

    def session(self, client: str) -> dict[str, Any] | None:
        """One session in detail; None if the gateway has none for that client. Raises GatewayApiError."""
        return self._ask_about(client, "GET", "/admin/session")

    def kick(self, client: str, *, end_session: bool) -> dict[str, Any] | None:
        """Disconnects a client, and ends its session if asked to; None if there is none. Raises GatewayApiError."""
        return self._ask_about(client, "DELETE", "/admin/session" if end_session else "/admin/connection")

    def readiness(self) -> dict[str, Any]:
        """`ready`, and `parts` by name. Raises GatewayApiError."""
        return self._ask("GET", "/readyz", {}, also=(503,))

    def gateways(self) -> dict[str, Any]:
        """The gateways of its cluster, as :func:`gateway.observe.cluster_admin.gateways` has them. Raises
        GatewayApiError, also if it is in none."""
        return self._ask("GET", "/admin/gateways", {})

    def shards(self) -> dict[str, Any]:
        """The leases of the shards, as :func:`gateway.observe.cluster_admin.shards` has them. Raises the same."""
        return self._ask("GET", "/admin/shards", {})

    def move(self, shard: int, to: str) -> dict[str, Any]:
        """Asks it to move a shard that it owns. Raises GatewayApiError with the reason if it cannot."""
        return self._ask("POST", f"/admin/shards/{shard}/move", {"to": to})

    def drain(self) -> dict[str, Any]:
        """Asks it to move all its shards to others. Raises GatewayApiError with the reason if it cannot."""
        return self._ask("POST", "/admin/drain", {})

    def _ask_about(self, client: str, method: str, path: str) -> dict[str, Any] | None:
        answer = self._ask(method, path, {"client": client}, also=(404,))
        return None if "error" in answer else answer

    def _ask(self, method: str, path: str, query: dict[str, str], also: tuple[int, ...] = ()) -> dict[str, Any]:
        """The JSON of the answer. An error status not in `also` raises GatewayApiError."""
        given = {name: value for name, value in query.items() if value}
        request = Request(f"{self.url}{path}?{urlencode(given)}", method=method)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with _opener.open(request, timeout=TIMEOUT_S) as answer:
                return self._decode(answer.read())
        except HTTPError as error:
            with error:
                body = error.read()
            if error.code in also:
                return self._decode(body)
            kind = GatewayUnreachable if error.code == _NOT_SERVING else GatewayApiError
            raise kind(f"the gateway at {self.url} refused the request: {_sentence(body, error)}") from error
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise GatewayUnreachable(
                f"the gateway at {self.url} does not answer: {reason}; check `waystation status`, "
                f"or name another gateway with --gateway"
            ) from error

    def _decode(self, body: bytes) -> dict[str, Any]:
        decoded = json.loads(body)
        if not isinstance(decoded, dict):
            raise ValueError("its answer is not a JSON object")
        return decoded


def api_of(listener: str) -> str:
    """The URL of a gateway that listens at `host:port`, from this machine."""
    host, _, port = listener.rpartition(":")
    host = _ANY_HOST.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def checked_url(text: str) -> str:
    """A URL given on the command line, without a path. Raises GatewayApiError if it is not a URL."""
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and parts.hostname and not parts.path.strip("/")
        is_right = is_right and not parts.username and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        raise GatewayApiError(
            f"{text!r} is not the address of a gateway: write http://HOST:PORT with the port that serves /metrics"
        )
    return f"{parts.scheme}://{parts.netloc}"


def answers(apis: Sequence[GatewayApi], ask: Callable[[GatewayApi], Found]) -> Iterator[tuple[GatewayApi, Found]]:
    """What each of the gateways answers. One that does not answer is named on stderr, because others may have what is
    asked for; if none answers, the last error is raised."""
    silent: list[GatewayUnreachable] = []
    for api in apis:
        try:
            yield api, ask(api)
        except GatewayUnreachable as error:
            silent.append(error)
    if silent and len(silent) == len(apis):
        raise silent[-1]
    for one in silent:
        errors().print(str(one), markup=False)


def find(apis: Sequence[GatewayApi], client: str) -> Iterator[tuple[GatewayApi, dict[str, Any]]]:
    """The gateways that have a session of the client, and the session as each reports it."""
    for api, session in answers(apis, lambda api: api.session(client)):
        if session is not None:
            yield api, session


def _sentence(body: bytes, error: HTTPError) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
