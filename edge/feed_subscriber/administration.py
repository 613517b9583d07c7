"""Tells the stream administration service who subscribes, over HTTP, and renews that (S1).

It is for those who operate the feed: nothing is decided by the answer, and a service that is away stops no subscriber.
"""

import asyncio
import http.client
import json
import logging
import ssl
from typing import Final
from urllib.parse import quote

from edge.client.access_point import AccessPoint

_log: Final = logging.getLogger("waystation.feeds")
_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 64 << 10
_TTL_S: Final = 60.0
"""Between two attempts at most, and if the answer says nothing."""


class Administration:
    """`url` is a gateway's HTTP address; `authorization`: the header's value, None for none."""

    def __init__(
        self, url: str, feed: str, subscriber: str, mode: str, authorization: str | None, tls: ssl.SSLContext | None
    ) -> None:
        """Raises ValueError for an address, or a header's value, that is none."""
        if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
            raise ValueError("authorization is the value of a header: one line of printable ASCII characters")
        self._point = AccessPoint.parse(url)
        self._path = f"{self._point.path}/v1/feeds/{quote(feed, safe='')}/subscribers"
        self._subscriber, self._mode = subscriber, mode
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": authorization} if authorization is not None else {}
        )
        self._tls = tls

    async def run(self) -> None:
        """Until it is cancelled: tells, and tells again in time."""
        while True:
            ttl_s = await asyncio.to_thread(self._tell)
            await asyncio.sleep(ttl_s / 3)

    async def leave(self) -> None:
        """Tells that the subscriber has ended."""
        await asyncio.to_thread(self._ask, "DELETE", f"{self._path}/{quote(self._subscriber, safe='')}", None)

    # -- on a thread ---------------------------------------------------------------------------------------------------

    def _tell(self) -> float:
        """For how long the service remembers it, seconds."""
        body = json.dumps({"subscriber": self._subscriber, "mode": self._mode}).encode()
        answer = self._ask("POST", self._path, body)
        try:
            return min(_TTL_S, max(3.0, float(json.loads(answer)["ttl_s"])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # whatever has answered
            return _TTL_S / 4

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        """The answer's body; empty if there is none that says yes."""
        point = self._point
        connection = (
            http.client.HTTPSConnection(
                point.host, point.port, timeout=_TIMEOUT_S, context=self._tls or ssl.create_default_context()
            )
            if point.scheme == "https"
            else http.client.HTTPConnection(point.host, point.port, timeout=_TIMEOUT_S)
        )
        try:
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            found = answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            _log.warning("the administration service at %s does not answer: %s", point, error)
            return b""
        finally:
            connection.close()
        if answer.status >= 300:
            _log.warning("the administration service at %s answers %d: %.200r", point, answer.status, found)
            return b""
        return found
