"""A feed by way of a gateway: the stream that its homes have merged, through the client library (S3)."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from edge.client.client import Client
from edge.feed_subscriber.gateway_core import GatewayCore
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.outputs import Outputs
from edge.feed_subscriber.state import StateChange, StoredState

_TICK_S: Final = 1.0


class GatewaySource:
    """Implements :class:`edge.feed_subscriber.source.FeedSource`. The client's messages are all taken, so it is for the
    feed alone; `owns_client`: it is opened and closed here."""

    def __init__(
        self,
        feed: str,
        client: Client,
        *,
        owns_client: bool,
        streams: frozenset[str] | None,
        limits: FeedLimits,
        changed: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._feed, self._client, self._owns_client = feed, client, owns_client
        self._streams, self._limits = streams, limits
        self._changed, self._fail = changed, fail
        self._core: GatewayCore
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def outputs(self) -> Outputs:
        return self._core.outputs

    @property
    def counts(self) -> Mapping[str, int]:
        """What was not given, by reason."""
        return self._core.counts

    async def open(self, stored: StoredState) -> None:
        self._core = GatewayCore(self._feed, self._limits, stored, self._streams)
        if self._owns_client:
            await self._client.__aenter__()
        self._tasks = [asyncio.create_task(one) for one in (self._subscribe(), self._read(), self._tick())]

    def taken(self) -> None:
        """Nothing to do: the gateway sends no more than the client's inbox takes."""

    def commit(self, ordinal: int) -> None:
        self._core.commit(ordinal)

    def changes(self) -> StateChange | None:
        return self._core.changes()

    def stored(self) -> None:
        self._core.stored()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._owns_client:
            await self._client.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _subscribe(self) -> None:
        """Once the client is connected; it subscribes again by itself if its session is lost."""
        try:
            await self._client.subscribe(f"feeds/{self._feed}/#", qos=1)
        except Exception as error:
            self._fail(error)

    async def _read(self) -> None:
        try:
            while True:
                self._core.take(await self._client.take_message(), time.monotonic())
                self._changed()
        except StopAsyncIteration:
            return
        except Exception as error:
            self._fail(error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._core.tick(time.monotonic())
            self._changed()
