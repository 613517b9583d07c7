"""Phase one: asks an access point over HTTP which connect points there are (G1; RFC 9112).

`GET {access point}/v1/connect?bearer=…&client=…`. One request a connection, on the event loop: the time limit holds for
all of it, from the name's resolution to the last byte, however slowly bytes arrive. http.client parses what has
arrived. aiohttp would do as well, but nothing else here needs it, and a device's installation is small.
"""

import asyncio
import http.client
import io
import ssl
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from edge.client.connect_points import ConnectPoint, NoConnectPoints, decode_answer
from edge.link import text_of
from schemas.this_machine import is_loopback

ANSWER_BYTES_MAX: Final = 64 << 10
_TEXT_MAX: Final = 200  # of what a stranger says, in an error
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class AccessPoint:
    """A base URL, such as `https://access.example.org` or `http://10.0.0.7:8080`."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> "AccessPoint":
        """Raises ValueError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{url!r} is not an access point: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname or not parts.hostname.isascii():
            raise ValueError(f"{url!r} is not an access point: write http:// or https:// and a host")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("an access point is a URL without user, query and fragment")
        path = quote(parts.path.rstrip("/"), safe="/%")
        return cls(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, path)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether nobody can read what is sent to it: TLS, or this machine."""
        return self.scheme == "https" or is_loopback(self.host)

    def request(self, bearer: str, client_id: str, authorization: str | None = None) -> bytes:
        """The request's bytes; `authorization` is the field's value (RFC 9110, 11.6.2)."""
        target = f"{self.path}/v1/connect?bearer={bearer}&client={quote(client_id, safe='')}"
        lines = [f"GET {target} HTTP/1.1", f"Host: {self.authority}", "Accept: application/json", "Connection: close"]
        lines += [f"Authorization: {authorization}"] if authorization else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def ask(
    access_point: AccessPoint,
    bearer: str,
    client_id: str,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    authorization: str | None = None,
) -> list[ConnectPoint]:
    """The connect points for `bearer`, in the order to try. Raises NoConnectPoints, which says why there are none."""
    context = (tls or ssl.create_default_context()) if access_point.scheme == "https" else None
    try:
        async with asyncio.timeout(timeout_s):
            raw = await _exchange(access_point, access_point.request(bearer, client_id, authorization), context)
    except TimeoutError:
        raise NoConnectPoints(f"no complete answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as error:  # ValueError: a host name that cannot be encoded
        raise NoConnectPoints(f"cannot be reached: {text_of(error)}") from None
    return parse_answer(raw, bearer)


def parse_answer(raw: bytes, bearer: str) -> list[ConnectPoint]:
    """The connect points in a complete HTTP answer. Raises NoConnectPoints; never anything else, whatever the bytes."""
    if len(raw) > ANSWER_BYTES_MAX:
        raise NoConnectPoints(f"the answer is larger than {ANSWER_BYTES_MAX >> 10} KiB")
    response = http.client.HTTPResponse(cast(Any, _Received(raw)), method="GET")
    try:
        response.begin()
        status, body = response.status, response.read()
    except (http.client.HTTPException, ValueError, OSError) as error:
        problem = _printable(str(error) or type(error).__name__)
        raise NoConnectPoints(f"the answer is not valid HTTP ({problem})") from None
    if status == http.HTTPStatus.OK:
        return decode_answer(body, bearer)
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise NoConnectPoints("it wants credentials, and got none that it accepts (it gets none over plain http)")
    if 300 <= status < 400:
        raise NoConnectPoints(f"it answers {status}, a redirect: perhaps this network has a login page")
    raise NoConnectPoints(f"it answers {status}" + (f" ({_printable(body.decode(errors='replace'))})" if body else ""))


async def _exchange(access_point: AccessPoint, request: bytes, context: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(access_point.host, access_point.port, ssl=context)
    try:
        writer.write(request)
        raw = bytearray()
        while len(raw) <= ANSWER_BYTES_MAX and (data := await reader.read(ANSWER_BYTES_MAX)):
            raw += data
        return bytes(raw)
    finally:
        writer.transport.abort()


class _Received:
    """The bytes of an answer, in the place of a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _printable(text: str) -> str:
    """What a stranger says, on one line, bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT_MAX]).split())[:_TEXT_MAX]
