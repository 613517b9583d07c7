"""HTTP clients that keep their word over any number of lost connections, as tests/faithful_client.py does for MQTT: one
posts with idempotency keys, one reads an event stream and acknowledges (G8, G11).

Both may meet any gateway of a site, with each request another one, and follow redirects.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec

from edge.client.event_stream import EventParser

AGAIN_S: Final = 0.1
POST_S: Final = 3.0
CONNECT_S: Final = 2.0
_STORED: Final = 202
_REFUSED_FOR_GOOD: Final = (400, 401, 403, 404, 405, 413, 415, 422)

Pick = Callable[[], int]
"""Picks the gateway for a request: its HTTP port."""


class Event(NamedTuple):
    """`message_id`: the same for each copy."""

    message_id: str
    payload: bytes


class _Data(msgspec.Struct):
    id: str
    payload: str


class Poster:
    """Posts one message after the other. `stored` are the payloads that were promised; `repeated` those that it posted
    more than once; `replays` counts answers that say so."""

    def __init__(self, session: aiohttp.ClientSession, pick: Pick, name: str) -> None:
        self._session, self._pick, self.name = session, pick, name
        self.stored: list[bytes] = []
        self.repeated: set[bytes] = set()
        self.ids: dict[bytes, str] = {}
        self.replays = 0
        self.faults: list[str] = []

    async def post(self, topic: str, payload: bytes, key: str) -> None:
        """Returns once some gateway has said that the message is stored."""
        headers = {"X-Client-Id": self.name, "Idempotency-Key": key}
        while not await self._posted(topic, payload, headers):
            self.repeated.add(payload)
            await asyncio.sleep(AGAIN_S)
        self.stored.append(payload)

    async def _posted(self, topic: str, payload: bytes, headers: dict[str, str]) -> bool:
        address = f"http://127.0.0.1:{self._pick()}/v1/messages/{quote(topic)}"
        try:
            async with self._session.post(
                address, data=payload, headers=headers, timeout=aiohttp.ClientTimeout(POST_S)
            ) as answer:
                if answer.status == _STORED:
                    self._note(payload, (await answer.json())["id"])
                    self.replays += answer.headers.get("Idempotency-Replayed") == "true"
                    return True
                if answer.status in _REFUSED_FOR_GOOD:
                    self.faults.append(f"{payload!r} was refused: {answer.status} {await answer.text()}")
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass  # it may be stored: the key says which it is
        return False

    def _note(self, payload: bytes, message_id: str) -> None:
        if self.ids.setdefault(payload, message_id) != message_id:
            self.faults.append(f"{payload!r} has two ids: {self.ids[payload]}, {message_id}")


class StreamReader:
    """Keeps a named event stream open. `got` is what it was given, with copies; `at` the port of the gateway that
    streams. Events are acknowledged soon after they have come, and when the stream is opened again."""

    def __init__(self, session: aiohttp.ClientSession, pick: Pick, name: str, topic_filter: str) -> None:
        self._session, self._pick, self.name, self._filter = session, pick, name, topic_filter
        self.got: list[Event] = []
        self.streams = 0
        self.faults: list[str] = []
        self.at = 0
        self._last = ""
        self._acknowledged = ""
        self._task: asyncio.Task[None] | None = None
        self._response: aiohttp.ClientResponse | None = None

    async def open(self) -> None:
        """Returns once the stream is open; it is opened again whenever it ends."""
        self._task = asyncio.create_task(self._stay())
        while not self.streams:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def drop(self) -> None:
        """Breaks the stream; it is opened again."""
        if self._response is not None:
            self._response.close()

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.got]

    async def _stay(self) -> None:
        acknowledging = asyncio.create_task(self._acknowledge())
        try:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    await self._read_one()
                self._response = None
                await asyncio.sleep(AGAIN_S)
        finally:
            acknowledging.cancel()
            await asyncio.gather(acknowledging, return_exceptions=True)

    async def _read_one(self) -> None:
        headers = {"X-Client-Id": self.name, **({"Last-Event-ID": self._last} if self._last else {})}
        address = f"http://127.0.0.1:{self._pick()}/v1/stream?filter={quote(self._filter, safe='')}"
        time_out = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with asyncio.timeout(POST_S):
            response = await self._session.get(address, headers=headers, timeout=time_out)
        async with response:
            if response.status in _REFUSED_FOR_GOOD:
                self.faults.append(f"the stream was refused: {response.status} {await response.text()}")
            if response.status != 200:
                return
            self._response, self.at = response, response.url.port or 0
            self.streams += 1
            parser = EventParser()
            async for data in response.content.iter_any():
                for event in parser.receive(data):
                    if event.name == "message":
                        found = msgspec.json.decode(event.data, type=_Data)
                        self.got.append(Event(found.id, found.payload.encode()))
                        self._last = event.event_id

    async def _acknowledge(self) -> None:
        """What cannot be acknowledged is delivered again."""
        while True:
            await asyncio.sleep(AGAIN_S)
            last = self._last
            if last == self._acknowledged or not self.at:
                continue
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with self._session.post(
                    f"http://127.0.0.1:{self._pick()}/v1/stream/ack",
                    json={"last_event_id": last},
                    headers={"X-Client-Id": self.name},
                    timeout=aiohttp.ClientTimeout(POST_S),
                ) as answer:
                    if answer.status == 204:
                        self._acknowledged = last
