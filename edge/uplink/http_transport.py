"""HTTP/1.1 connections to one gateway, kept open between requests, each request with one time limit (RFC 9112).

Streams of asyncio carry the bytes, and http.client parses the head of an answer. The time limit holds for all of a
request, from the name's resolution to the last byte of the answer, however slowly bytes arrive. A connection can be
bound to a source address or to an interface, so that it uses one bearer and no other (M4).

A connection that the server has closed while it was idle shows only when the next request fails: such a request is
sent once more, over a new connection. Callers send only what may be repeated.
"""

import asyncio
import http.client
import io
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from edge.client.access_point import AccessPoint
from edge.connected_socket import connected_socket
from edge.link import text_of
from edge.uplink.errors import NotReachable

HEAD_BYTES_MAX: Final = 32 << 10
_IDLE_MOST: Final = 3
_TEXT_MAX: Final = 300  # of what a stranger says, in an error
_READ_BYTES: Final = 64 << 10
Fields = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """`content_type` without parameters; `retry_after` is the header field, "" if missing; `elapsed_s`: from the
    request's first byte, on an open connection, to the answer's last."""

    status: int
    content_type: str
    retry_after: str
    body: bytes
    elapsed_s: float


class Source(NamedTuple):
    """What a connection is bound to; "": nothing. Binding to an interface is possible on Linux only."""

    address: str = ""
    interface: str = ""


@dataclass(slots=True)
class Traffic:
    """Bytes of requests and answers, as HTTP makes them, without TLS and TCP."""

    sent: int = 0
    received: int = 0


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class HttpTransport:
    """`base`: scheme, host, port and path before all targets. `server_hostname`: the name in the server's certificate,
    if it is not the host. `traffic` is counted up."""

    def __init__(
        self,
        base: AccessPoint,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        source: Source | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.base = base
        self._tls = (tls or ssl.create_default_context()) if base.scheme == "https" else None
        self._server_hostname = (server_hostname or base.host) if self._tls else None
        self._source = source or Source()
        self._traffic = traffic or Traffic()
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def exchange(
        self, method: str, target: str, fields: Fields, body: bytes, *, timeout_s: float, answer_bytes: int
    ) -> Answer:
        """The answer to a request. Raises NotReachable if there is none within `timeout_s` seconds, or none that is
        HTTP, or one with a body of more than `answer_bytes` bytes."""
        head = [f"{method} {self.base.path}{target} HTTP/1.1", f"Host: {self.base.authority}"]
        head += [f"{name}: {value}" for name, value in fields]
        head += [f"Content-Length: {len(body)}"] if method == "POST" else []
        request = "\r\n".join([*head, "", ""]).encode("latin-1") + body
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(request, timeout_s, answer_bytes)
        except TimeoutError:
            raise NotReachable(f"no complete answer within {timeout_s:g} s") from None

    def close(self) -> None:
        """Breaks the connections that are idle; those in use end with their request."""
        self._is_closed = True
        for connection in self._idle:
            connection.writer.transport.abort()
        self._idle.clear()

    async def _exchange(self, request: bytes, timeout_s: float, answer_bytes: int) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            if connection.writer.is_closing() or connection.reader.at_eof():
                connection.writer.transport.abort()
                continue
            try:
                return await self._over(connection, request, answer_bytes)
            except NotReachable as error:
                if error.is_certain:
                    raise
                break
        return await self._over(await self._connect(timeout_s), request, answer_bytes)

    async def _over(self, connection: _Connection, request: bytes, answer_bytes: int) -> Answer:
        reader, writer = connection
        clock, is_kept = asyncio.get_running_loop().time, False
        began_s = clock()
        try:
            writer.write(request)
            self._traffic.sent += len(request)
            response, body, size = await _read(reader, answer_bytes)
            self._traffic.received += size
            is_kept = not (response.will_close or self._is_closed) and len(self._idle) < _IDLE_MOST
        except (OSError, EOFError) as error:
            raise _broken(error) from error
        except (http.client.HTTPException, ValueError, asyncio.LimitOverrunError) as error:
            what = printable(str(error)) or type(error).__name__
            raise NotReachable(f"the answer is not valid HTTP ({what})", is_certain=True) from error
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                writer.transport.abort()
        content_type = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        retry_after = (response.getheader("Retry-After") or "").strip()
        return Answer(response.status, content_type, retry_after, body, clock() - began_s)

    async def _connect(self, timeout_s: float) -> _Connection:
        """Tries the host's addresses in turn; each gets its part of the time."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.base.host, self.base.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be encoded
            text = f"the name {self.base.host} cannot be resolved: {text_of(error)}"
            raise NotReachable(text, is_certain=True) from error
        problem: Exception = NotReachable(f"{self.base.host} has no address")
        for family, kind, protocol, _, address in found:
            try:
                async with asyncio.timeout(timeout_s / len(found)):
                    sock = await connected_socket(family, kind, protocol, address, self._bind)
                    reader, writer = await asyncio.open_connection(
                        sock=sock, ssl=self._tls, server_hostname=self._server_hostname, limit=HEAD_BYTES_MAX
                    )
                    return _Connection(reader, writer)
            except (OSError, ValueError) as error:
                problem = error
        raise _not_connected(problem, timeout_s) from problem

    def _bind(self, sock: socket.socket) -> None:
        if self._source.interface:
            if not hasattr(socket, "SO_BINDTODEVICE"):
                raise OSError("this system cannot bind a connection to an interface: set source_address instead")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._source.interface.encode() + b"\0")
        if self._source.address:
            sock.bind((self._source.address, 0))


async def _read(reader: asyncio.StreamReader, most: int) -> tuple[http.client.HTTPResponse, bytes, int]:
    """The head, the body, and the bytes of both."""
    head = await reader.readuntil(b"\r\n\r\n")
    response = http.client.HTTPResponse(cast(Any, _Received(head)), method="GET")
    response.begin()
    encoding = response.getheader("Content-Encoding")
    if encoding not in (None, "identity"):
        raise ValueError(f"it is encoded as {encoding}, which was not asked for")
    if response.chunked:
        body = await _read_chunks(reader, most)
    elif response.length is not None:
        if response.length > most:
            raise ValueError(f"the answer is larger than {most} bytes")
        body = await reader.readexactly(response.length)
    else:
        body = await _read_to_end(reader, most)
    return response, body, len(head) + len(body)


async def _read_to_end(reader: asyncio.StreamReader, most: int) -> bytes:
    body = bytearray()
    while data := await reader.read(_READ_BYTES):
        body += data
        if len(body) > most:
            raise ValueError(f"the answer is larger than {most} bytes")
    return bytes(body)


async def _read_chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0].strip(), 16)
        if not 0 <= size <= most - len(body):
            raise ValueError(f"the answer is larger than {most} bytes")
        if size == 0:
            break
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk does not end where it says")
    trailers = 0
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers += len(line)
        if trailers > HEAD_BYTES_MAX:
            raise ValueError("the trailer is too long")
    return bytes(body)


class _Received:
    """The bytes of a head, in the place of a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _broken(error: Exception) -> NotReachable:
    if isinstance(error, EOFError):
        return NotReachable("the connection ended within the answer")
    return NotReachable(f"the connection broke: {printable(text_of(error))}")


def _not_connected(error: Exception, timeout_s: float) -> NotReachable:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = printable(error.verify_message)
        text = f"the certificate is not trusted ({what}): perhaps this network has a login page"
        return NotReachable(text, is_certain=True)
    if isinstance(error, TimeoutError):
        return NotReachable(f"no connection within {timeout_s:g} s")
    return NotReachable(f"cannot be reached: {printable(text_of(error))}", is_certain=True)


def printable(text: str) -> str:
    """What a stranger says, on one line, bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _TEXT_MAX]).split())[:_TEXT_MAX]
