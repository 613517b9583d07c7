"""HTTP connections to one gateway: an event stream and requests, each with limits on time and size (RFC 9112).

aiohttp keeps connections open and parses what arrives. Every error of it becomes AnswerFault or Unreachable here.
"""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from yarl import URL

from edge.client.http_answers import ANSWER_BYTES_MAX, CLIENT_ID_HEADER, Answer, printable
from edge.errors import AnswerFault
from edge.tcp_progress import Progress, progress

_HEADER_BYTES_MAX: Final = 8_190
_CHUNK_BYTES: Final = 64 << 10
_LOOKS: Final = 4  # how often the progress of a request is looked at while its answer may last
_NOT_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
Fields = Iterable[tuple[str, str]]


class HttpStream:
    """An event stream that is open. `answer` is its head."""

    def __init__(self, response: aiohttp.ClientResponse, answer: Answer) -> None:
        self._response = response
        self.answer = answer

    async def receive(self, timeout_s: float | None) -> bytes:
        """Bytes as they arrive; b"" at the end. Raises AnswerFault, also if nothing arrives in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._response.content.readany()
        except TimeoutError:
            raise AnswerFault(f"nothing arrived for {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _fault(error) from error

    def close(self) -> None:
        """Ends the stream and its connection."""
        self._response.close()


class _Body(Payload):
    """The body of a request, whose way to the server can be seen."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data, self._size = data, len(data)
        self._transport: asyncio.Transport | None = None

    @property
    def progress(self) -> Progress:
        """How far the server has got with it."""
        if self._transport is None:
            return Progress(len(self._data), 0)
        return progress(self._transport, len(self._data))

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._transport = getattr(writer, "transport", None)
        await writer.write(self._data)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._data.decode(encoding, errors)


class HttpConnection:
    """`base` is scheme, host and port; `fields` go with each request. At most `connections` requests at a time, beside
    the stream; an answer must be complete within `answer_s` after the server has last taken some of the request."""

    def __init__(
        self,
        base: str,
        fields: Fields,
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
        connections: int,
        answer_s: float,
    ) -> None:
        self._base = base
        self._server_hostname = server_hostname if base.startswith("https:") else None
        self._answer_s = answer_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections + 3, ssl=tls or True),  # + two streams, an acknowledgement
            headers=list(fields),
            skip_auto_headers=_NOT_AUTOMATIC,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            max_line_size=_HEADER_BYTES_MAX,
            max_field_size=_HEADER_BYTES_MAX,
        )

    async def open_stream(self, target: str, last_event_id: str | None, timeout_s: float) -> HttpStream:
        """The stream, or what else is answered; then it is closed already. Raises AnswerFault."""
        fields = [("Accept", "text/event-stream")]
        fields += [] if last_event_id is None else [("Last-Event-ID", last_event_id)]
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._request("GET", target, fields, None)
                if response.status == 200:
                    return HttpStream(response, _answer(response, b""))
                return HttpStream(response, await _complete(response))
        except TimeoutError:
            raise AnswerFault(f"no answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _fault(error) from error

    async def post(self, target: str, fields: Fields, body: bytes) -> Answer:
        """The answer to a POST. Raises AnswerFault."""
        sent = _Body(body)
        try:
            async with asyncio.timeout(self._answer_s) as limit:
                with _extended(limit, sent, self._answer_s):
                    return await _complete(await self._request("POST", target, fields, sent))
        except TimeoutError:
            raise AnswerFault(f"no complete answer within {self._answer_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _fault(error) from error

    async def close(self) -> None:
        """Breaks all connections."""
        await self._session.close()

    async def _request(self, method: str, target: str, fields: Fields, body: _Body | None) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            URL(self._base + target, encoded=True),
            headers=list(fields),
            data=body,
            allow_redirects=False,
            server_hostname=self._server_hostname,
        )


@contextmanager
def _extended(limit: asyncio.Timeout, body: _Body, answer_s: float) -> Iterator[None]:
    """Puts off the limit to `answer_s` from now whenever the server has taken more of what waited for it."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def look(before: Progress) -> None:
        nonlocal timer
        now = body.progress
        if now.has_gone_on_since(before) and not limit.expired():
            limit.reschedule(loop.time() + answer_s)
        timer = loop.call_later(answer_s / _LOOKS, look, now)

    timer = loop.call_later(answer_s / _LOOKS, look, body.progress)
    try:
        yield
    finally:
        timer.cancel()


async def _complete(response: aiohttp.ClientResponse) -> Answer:
    """Reads the body. The connection is kept for the next request only if the body has ended."""
    body = bytearray()
    try:
        while chunk := await response.content.read(_CHUNK_BYTES):
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                raise AnswerFault(f"the answer is larger than {ANSWER_BYTES_MAX >> 10} KiB")
    except BaseException:
        response.close()
        raise
    response.release()
    return _answer(response, bytes(body))


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    fields = response.headers
    content_type = fields.get("Content-Type", "").partition(";")[0].strip().lower()
    retry_after, client_id = fields.get("Retry-After", ""), fields.get(CLIENT_ID_HEADER, "")
    return Answer(response.status, content_type, retry_after.strip(), client_id, body)


def _fault(error: Exception) -> AnswerFault:
    """aiohttp's texts may quote what arrived."""
    if isinstance(error, aiohttp.ClientConnectorError):
        os_error = error.os_error
        return AnswerFault(f"cannot be reached: {printable(os_error.strerror or str(os_error))}")
    return AnswerFault(f"the connection failed: {printable(str(error)) or type(error).__name__}")
