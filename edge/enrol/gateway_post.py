"""Posts to a gateway over HTTP: one request a connection, with one time limit for all of it (RFC 9112)."""

import asyncio
import http.client
import io
import ssl
from typing import Any, Final, cast

from edge.client.access_point import AccessPoint
from edge.enrol.enrolment import HttpAnswer
from edge.enrol.errors import EnrolError, GatewayNotReached
from edge.link import text_of
from schemas.enrolment import ANSWER_BYTES_MAX
from schemas.visible import visible

_HEAD_BYTES_MAX: Final = 64 << 10
_READ_BYTES: Final = 64 << 10


class GatewayPost:
    """:data:`edge.enrol.enrolment.Post` to one gateway. `url`: such as `https://gateway.example.org`. `tls`: who is
    trusted; None: the system's authorities. `server_name`: the name in the gateway's certificate, if it is not the
    host. Raises EnrolError for a URL that is malformed, or plain http to another machine: anybody could use a token
    that they have read."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, timeout_s: float, server_name: str = "") -> None:
        try:
            self.gateway = AccessPoint.parse(url)
        except ValueError as error:
            raise EnrolError(str(error).replace("an access point", "a gateway")) from error
        if not self.gateway.is_private:
            raise EnrolError(f"{url} is not safe for a token: write https://, or ask a gateway on this machine")
        self._tls = (tls or ssl.create_default_context()) if self.gateway.scheme == "https" else None
        self._server_name = (server_name or self.gateway.host) if self._tls else None
        self._timeout_s = timeout_s

    async def __call__(self, path: str, body: bytes) -> HttpAnswer:
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._exchange(path, body)
        except TimeoutError as error:
            raise GatewayNotReached(f"{self.gateway}: no complete answer within {self._timeout_s:g} s") from error
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be encoded
            raise GatewayNotReached(f"{self.gateway} cannot be reached: {visible(text_of(error))}") from error
        if len(raw) > ANSWER_BYTES_MAX + _HEAD_BYTES_MAX:
            raise GatewayNotReached(f"{self.gateway}: the answer is larger than {ANSWER_BYTES_MAX >> 20} MiB")
        return self._parsed(raw)

    async def _exchange(self, path: str, body: bytes) -> bytes:
        lines = (
            f"POST {self.gateway.path}{path} HTTP/1.1",
            f"Host: {self.gateway.authority}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        reader, writer = await asyncio.open_connection(
            self.gateway.host, self.gateway.port, ssl=self._tls, server_hostname=self._server_name
        )
        try:
            writer.write("\r\n".join((*lines, "", "")).encode("ascii") + body)
            raw = bytearray()
            while len(raw) <= ANSWER_BYTES_MAX + _HEAD_BYTES_MAX and (data := await reader.read(_READ_BYTES)):
                raw += data
            return bytes(raw)
        finally:
            writer.transport.abort()

    def _parsed(self, raw: bytes) -> HttpAnswer:
        response = http.client.HTTPResponse(cast(Any, _Received(raw)), method="POST")
        try:
            response.begin()
            return HttpAnswer(response.status, response.read())
        except (http.client.HTTPException, ValueError, OSError) as error:
            problem = visible(str(error) or type(error).__name__)
            raise GatewayNotReached(f"{self.gateway}: the answer is not valid HTTP ({problem})") from error


class _Received:
    """What http.client takes for a socket: bytes that have all arrived."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._raw)
