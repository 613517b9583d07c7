"""The router in plain Python: `ingress` and `routes` of a MemoryBroker in, `egress` and zero-touch records out."""

import asyncio
from collections import deque
from collections.abc import Iterator

from gateway.memory_bus import MemoryBroker, MemoryRecord
from schemas.envelope import EVERYONE, INGRESS_HEADERS, ROUTED, Instruction
from schemas.events import DROP_LEADS, ProgressEvent, RouteEvent, decode, encode
from schemas.identity import INBOX_MARK, candidate_keys, partition_of, shard_of
from schemas.topics import Topics

FOREVER = 1 << 62


def routes_of(records: list[MemoryRecord], lead_ms: int) -> Iterator[tuple[str, int, int, int]]:
    """(route key, shard, effective from, effective until), ms."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for record in records:
        event, appended = decode(RouteEvent, record.value() or b""), record.timestamp()[1]
        of_place = found.setdefault((event.route_key, event.shard), [])
        since, until = of_place[-1] if of_place else (0, 0)
        if event.op == "add" and appended + lead_ms < until:
            of_place[-1] = since, FOREVER
        elif event.op == "add":
            of_place.append((appended + lead_ms, FOREVER))
        elif until == FOREVER:
            of_place[-1] = since, appended + DROP_LEADS * lead_ms
    for place, intervals in found.items():
        for interval in intervals:
            yield *place, *interval


class ReferenceRouter:
    """One of two routers. `delay_s` from a message to its instructions; a `stale` one sends to everyone."""

    def __init__(self, name: str, broker: MemoryBroker, topics: Topics, shards: int, partitions: int, lead_ms: int):
        self.name, self.delay_s, self.stale, self.stopped = name, 0.001, False, False
        self._broker, self._topics, self._shards, self._lead_ms = broker, topics, shards, lead_ms
        self._read = dict.fromkeys(range(partitions), 0)
        self._due, self._seen = 0.0, deque[MemoryRecord]()
        broker.listen(self.wake)

    def wake(self) -> None:
        """New records may be there; what is seen is sent on after the delay, in order."""
        loop = asyncio.get_running_loop()
        for partition, start in self._read.items() if not self.stopped else ():
            records = self._broker.partitions[self._topics.ingress, partition][start:]
            self._read[partition] += len(records)
            for record in records:
                self._due = max(self._due, loop.time() + self.delay_s)
                self._seen.append(record)
                loop.call_at(self._due, lambda: self._send(self._seen.popleft()))

    def decide(self, record: MemoryRecord) -> tuple[str, list[int]]:
        """Scope and shards: a pure function of the message and the routes."""
        topic, appended = (record.key() or b"").decode(), record.timestamp()[1]
        if topic.startswith(INBOX_MARK):
            return ROUTED, [shard_of(topic[1:], self._shards)]
        if self.stale:
            return EVERYONE, list(range(self._shards))
        keys = candidate_keys(topic)
        routes = routes_of(self._broker.partitions[self._topics.routes, 0], self._lead_ms)
        return ROUTED, sorted(
            {shard for key, shard, since, until in routes if key in keys and since <= appended < until}
        )

    def _send(self, record: MemoryRecord) -> None:
        if tuple(name for name, _ in record.headers() or []) != INGRESS_HEADERS:
            return
        scope, shards = self.decide(record)
        headers, (place, offset) = record.headers() or [], (record.partition(), record.offset())
        appended = record.timestamp()[1]
        for number, shard in enumerate(shards):
            limit = len(shards) if number == len(shards) - 1 else None
            instruction = Instruction(place, offset, number, limit, appended, scope).encode()
            extended = [*headers, ("instr", instruction), ("router", self.name.encode())]
            self._broker.append(MemoryRecord((self._topics.egress, shard), record.key(), record.value(), extended))
        if not shards:
            message_id = headers[0][1].decode()
            event = ProgressEvent(
                kind="untouched", id=message_id, partition=place, offset=offset, appended_ms=appended, limit=0
            )
            target = (self._topics.progress, partition_of(message_id, len(self._read)))
            self._broker.append(MemoryRecord(target, message_id.encode(), encode(event), None))
