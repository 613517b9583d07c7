"""`$feeds/<feed>`: the state of each feed as a topic, for MQTT clients (S1).

Every gateway publishes it to its own clients only, as `$SYS/…`: each client is at one gateway, so it gets a change
once, without a record on Kafka and without gateways having to agree on who publishes. The message is the state as
`GET /v1/feeds` has it; retained, at QoS 0. Changes that follow one another quickly may be sent as one.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.feeds.service import FeedService
from gateway.shard.home import Home
from gateway.shard.local_publishing import publish_locally
from gateway.shard.node import Node
from schemas.feed_api import FEEDS_ROOT


class FeedTopics:
    """Publishes from `start` to `stop`. `settle_s`: how long to wait at first, until adapters that are alive are
    known to be."""

    def __init__(
        self, node: Node, home: Home, service: FeedService, settle_s: float, on_fatal: Callable[[Exception], None]
    ) -> None:
        self._node = node
        self._home = home
        self._service = service
        self._settle_s = settle_s
        self._on_fatal = on_fatal
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._service.events.listeners.append(self._note)
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _note(self, feed: str) -> None:
        self._changed[feed] = None
        self._wake.set()

    async def _run(self) -> None:
        await asyncio.sleep(self._settle_s)
        for feed in self._service.feeds():
            self._note(feed)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._changed:
                feed = next(iter(self._changed))
                del self._changed[feed]
                await self._publish(feed)

    async def _publish(self, feed: str) -> None:
        topic, now_ms = f"{FEEDS_ROOT}/{feed}", int(self._node.clock() * 1000)
        if self._service.knows(feed):
            value = msgspec.json.encode(self._service.state(feed)).decode()
            messages = self._node.system.put({topic: value}, now_ms)
        else:
            messages = self._node.system.remove(topic, now_ms)
        for message in messages:
            await publish_locally(self._home.states, message)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_fatal(error)
