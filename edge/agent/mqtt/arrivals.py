"""Messages without an envelope, from the platform or from a broker, on their way into the stand-in's file (M16, M21).

They go through the table `arrived` of the client's store, which makes QoS 2 exact (:mod:`.exact_store`). If the
stand-in's file is full they wait there, and then at the server: it gets no acknowledgement.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from edge.agent.insisting import insist
from edge.agent.mailroom import new_id
from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.message import MqttMessage, plain
from edge.agent.mqtt.sessions import encode
from edge.agent.mqtt.store import MqttStore, Taken
from edge.client.client import Client
from edge.client.errors import DiskFull, StoreFull
from edge.client.message import IncomingMessage

AT_ONCE: Final = 100
WAITING_MAX: Final = 1_000
AGAIN_S: Final = 2.0

_log: Final = logging.getLogger("waystation.agent")

Take = Callable[[MqttStore, MqttMessage], Taken]


class Arrivals:
    """`source` names them in the stand-in's file. `take` takes one, in a transaction; `taken` hears of it after."""

    def __init__(
        self,
        source: str,
        client: Client,
        store: ExactStore,
        changes: Changes,
        take: Take,
        taken: Callable[[Taken], None],
    ) -> None:
        self._source, self._client, self._store, self._changes = source, client, store, changes
        self._take, self._taken = take, taken
        self._news = asyncio.Event()
        self._waiting = 0

    async def arrived(self, message: IncomingMessage) -> None:
        """Call it once for a message, and acknowledge the message when it has returned, in the same turn."""
        while self._waiting >= WAITING_MAX:
            self._news.set()  # some may never come: those whose acknowledgement was lost with its connection
            await asyncio.sleep(AGAIN_S)
        content = encode(plain(new_id(), message))
        if message.qos == 2:
            self._store.arrives(message.packet_id, content)
        else:
            await self._insist(lambda: self._store.arrive(content))
        self._waiting += 1
        self._news.set()

    async def run(self) -> None:
        """For ever; raises the error that ended the client or the store."""
        source, store, loop = self._source, self._store, asyncio.get_running_loop()

        def news() -> None:
            loop.call_soon_threadsafe(self._news.set)

        store.on_arrived = news
        position = await self._changes.insist(lambda found: found.position(source, store.incarnation))
        if position > store.last_arrived:  # else what it gives the same numbers to would count as taken
            _log.warning("the file of what arrived from the %s is an earlier copy; some may be taken again", source)
            position = 0
            await self._changes.insist(lambda found: found.set_position(source, store.incarnation, 0))
        has_complained = False
        while True:
            self._news.clear()
            rows = await self._client.on_store(lambda _, after=position: store.arrived(after, AT_ONCE))  # type: ignore[misc]
            if not rows:
                self._waiting = 0
                await self._news.wait()
                continue
            done, problem = await self._changes.insist(partial(self._take_all, rows))
            self._waiting = max(0, self._waiting - len(done))
            for taken in done:
                self._taken(taken)
            if done:
                position = rows[len(done) - 1][0]
                await self._insist(partial(store.forget_arrived, position))
            if problem and not has_complained:
                _log.warning("messages from the %s wait: %s", source, problem)
            has_complained = bool(problem)
            if problem:
                await asyncio.sleep(AGAIN_S)

    async def _insist(self, change: Callable[[], None]) -> None:
        """Makes a change of the client's store; while the disk is full it is tried again."""
        waits = f"messages from the {self._source} wait"
        await insist(lambda: self._client.on_store(lambda _: change()), DiskFull, waits=waits, pause_s=AGAIN_S)

    def _take_all(self, rows: list[tuple[int, bytes]], store: MqttStore) -> tuple[list[Taken], str]:
        """Takes them in order, up to the first for which there is no space; says why."""
        done: list[Taken] = []
        for number, content in rows:
            try:
                with store.part():
                    done.append(self._take(store, _decoded(content)))
            except StoreFull as error:
                return done, str(error)
            store.set_position(self._source, self._store.incarnation, number)
        return done, ""


def _decoded(content: bytes) -> MqttMessage:
    found = msgspec.msgpack.decode(content, type=MqttMessage)
    if "user_property" in found.properties:
        found.properties["user_property"] = [(name, value) for name, value in found.properties["user_property"]]
    return found
