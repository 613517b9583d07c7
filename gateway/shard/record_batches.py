"""Applying batches of records: each to the shard it is for, in order, in turns of the event loop.

Records are applied one after the other. Work that exceeds a turn continues in the next one
(:mod:`gateway.shard.work`), so that expensive records do not delay other connections.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from gateway.record import Record
from gateway.shard.egress_consumer import EgressConsumer
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.ingress_record import IngressRecord
from gateway.shard.node import Node
from gateway.shard.work import RECORD, Steps

_DONE: Final = object()


class RecordBatches:
    """Takes what the consumer brings. `consumers` are those of the shards that are here, by number."""

    def __init__(self, node: Node, ingress: IngressReader, consumers: Mapping[int, EgressConsumer]) -> None:
        self._node = node
        self._reader = ingress
        self._consumers = consumers
        self._egress = node.topics.egress
        self._ingress = node.topics.ingress
        self._retained = node.topics.retained
        self._begun: deque[tuple[Steps[None], asyncio.Future[None]]] = deque()
        """Batches that are not fully applied yet, in order."""

    def take(self, batch: list[Record]) -> asyncio.Future[None] | None:
        """Applies one batch of the consumer. Returns None if it is applied, else a future that is done when it is."""
        steps = self._apply(batch)
        if not self._begun and self._is_done(steps):
            return None
        loop = asyncio.get_running_loop()
        applied: asyncio.Future[None] = loop.create_future()
        self._begun.append((steps, applied))
        if len(self._begun) == 1:
            loop.call_soon(self._go_on)
        return applied

    def _go_on(self) -> None:
        """Continues in a turn of the event loop."""
        steps, applied = self._begun[0]
        try:
            is_done = self._is_done(steps)
        except Exception as error:  # what was not got to would be lost without a word
            self._node.on_fatal(error)
            return
        if is_done:
            self._begun.popleft()
            applied.set_result(None)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _is_done(self, steps: Steps[None]) -> bool:
        """Works on a batch for one turn; True if the batch is applied."""
        work = self._node.work
        work.spent = 0
        is_half = next(steps, _DONE)
        self._node.ready.flush()
        work.pause(is_half is True)
        return is_half is _DONE

    def _apply(self, batch: list[Record]) -> Steps[None]:
        work, consumers = self._node.work, self._consumers
        for record in batch:
            topic = record.topic()
            if topic == self._egress:
                consumer = consumers.get(record.partition())
                rest = None if consumer is None else consumer.apply(record)
                if rest is not None:
                    yield from rest
            elif topic == self._ingress:
                self._reader.received(record)
                read = IngressRecord(record)
                for consumer in list(consumers.values()):
                    yield from consumer.read(read)
            elif topic == self._retained:
                self._node.retained.fold(record)
            else:
                self._node.message_presence.fold(record)
            if work.spend(RECORD):
                yield False
        for consumer in list(consumers.values()):
            if consumer.waits:
                yield from consumer.reconsider()
            consumer.adjust()
