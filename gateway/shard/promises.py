"""What the home of one shard promises to others, and when it may (G7, Q1, Q7).

Theory of operation. Without other gateways a record counts once Kafka has stored it. Where gateways share shards it
counts only if no fence of a higher epoch stands before it, and only the log says that. So the home reads its own
partition of `sessions` along, and acts on what it has written once it has read it back
(:mod:`gateway.cluster.read_back`).

* **Records of the session log**: `stored` takes the action that waits for a record, and runs it when the record is read
  back.
* **Everything else** waits for a barrier, a record without meaning that is written afterwards: PUBREC, for a message on
  `ingress`; a commit of the spool, for its marker; events on `progress`
  (:mod:`gateway.shard.progress`); a will, and the end of a session whose time is over, for the right to act at all. The
  next owner writes its fence on `sessions` first (:mod:`gateway.shard.fences`), so a barrier that is read back before
  any fence proves that all that was stored when it was written counts. One barrier is on its way at a time; the next
  one serves all that has come meanwhile.

When a higher fence is read, the shard is lost. No action runs any more, and whoever waits in `wait` gets ShardLost.

Records of a lower epoch behind the home's fence are void. Each is written again, as the home has it: at once while it
serves, and what came before when it begins to. Once everything is, the fences of earlier epochs are removed.
"""

import asyncio
from collections.abc import Callable

from gateway.cluster.read_back import Barriers, ReadBack
from gateway.errors import ShardLost
from gateway.record import Record
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.sessions_reader import SessionsReader
from schemas.fences import fence_key

Action = Callable[[], None]


class Promises:
    """Of one shard. Until `begin` nobody shares shards with this gateway, and nothing is read back. `on_superseded`
    gets the shard's number, the home's epoch and that of the fence, when another gateway has taken it."""

    def __init__(self, shard: int, reader: SessionsReader, on_superseded: Callable[[int, int, int], None]) -> None:
        self._shard = shard
        self._reader = reader
        self._on_superseded = on_superseded
        self._mend: Callable[[bytes], None]
        self._remove: Callable[[bytes], None]
        self._barrier: Callable[[Action], None]
        self._fenced: FencedPartition
        self._read_back: ReadBack[Action] | None = None
        self._barriers: Barriers[Action] = Barriers()
        self._is_barrier_out = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._removed: set[int] = set()
        self._when_lost: list[Action] = []
        self._is_serving = False
        self._is_lost = False

    async def begin(
        self,
        fenced: FencedPartition,
        offset: int,
        barrier: Callable[[Action], None],
        mend: Callable[[bytes], None],
        remove: Callable[[bytes], None],
    ) -> None:
        """Reads along from `offset` on, to which `fenced` has read. `barrier` writes a record and calls `stored` with
        its action; `mend` writes the record of a key again, `remove` a tombstone for a key. Raises BusError."""
        self._fenced, self._barrier, self._mend, self._remove = fenced, barrier, mend, remove
        self._read_back = ReadBack(fenced.epoch, offset)
        await self._reader.add(self._shard, offset, self._take)

    def serve(self) -> None:
        """The home has its state: from now on it can say what belongs under a key."""
        self._is_serving = True
        if self._read_back is not None:
            for key in self._fenced.fences.unmended:
                self._mend(key)

    async def end(self) -> None:
        """Reads no more; the home is over. Raises BusError."""
        self.lose()
        await self._reader.remove(self._shard, self._take)

    @property
    def are_read_back(self) -> bool:
        """Whether gateways share shards."""
        return self._read_back is not None

    @property
    def is_lost(self) -> bool:
        """Whether another gateway has the shard: nothing is to be written or sent any more."""
        return self._is_lost

    def check(self) -> None:
        """Raises ShardLost if another gateway has the shard."""
        if self._is_lost:
            raise ShardLost(self._shard)

    def stored(self, offset: int, action: Action) -> None:
        """Kafka has stored a record of the session log at `offset`; runs `action`, now or once it is read back."""
        if self._read_back is None:
            action()
        elif not self._is_lost:
            self._run(self._read_back.stored(offset, action))

    def after_barrier(self, action: Action) -> None:
        """Runs `action` once it is known that no other gateway has had the shard until now, and that all that is stored
        by now counts: at once if gateways do not share shards."""
        if self._read_back is None:
            action()
            return
        if self._is_lost:
            return
        self._barriers.add(action)
        if not self._is_barrier_out:
            self._write_barrier()

    async def wait(self, write: Callable[[Action], None]) -> None:
        """Returns once what `write` writes counts, which hands on its argument as the action. Raises ShardLost."""
        self.check()
        counts: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resolve() -> None:
            if not counts.done():  # nobody waits any more
                counts.set_result(None)

        self._waiting.add(counts)
        try:
            write(resolve)
            await counts
        finally:
            self._waiting.discard(counts)

    async def confirm(self) -> None:
        """Returns once it is known that all that is stored by now counts. Raises ShardLost."""
        await self.wait(self.after_barrier)

    def lose(self) -> None:
        """Another gateway has the shard, or this home is over: no action runs any more."""
        if self._is_lost:
            return
        self._is_lost = True
        self._barriers.take()
        for counts in self._waiting:
            if not counts.done():
                counts.set_exception(ShardLost(self._shard))

        for action in self._when_lost:
            action()

    def when_lost(self, action: Action) -> None:
        """Runs `action` when the shard is lost, or this home is over; at once if it is."""
        if self._is_lost:
            action()
        else:
            self._when_lost.append(action)

    def _write_barrier(self) -> None:
        self._is_barrier_out = True
        served = self._barriers.take()

        def passed() -> None:
            self._is_barrier_out = False
            self._run(served)
            if len(self._barriers) and not self._is_barrier_out:
                self._write_barrier()

        self._barrier(passed)

    def _run(self, actions: list[Action]) -> None:
        for action in actions:
            if not self._is_lost:
                action()

    def _take(self, record: Record) -> None:
        """A record of the shard's partition, whoever has written it."""
        read_back, fenced = self._read_back, self._fenced
        if self._is_lost or read_back is None:
            return
        verdict = fenced.take(record)
        if verdict == "fence":
            self._run(read_back.fence(record.offset(), fenced.fences.epoch))
            if read_back.is_over:
                self.lose()
                self._on_superseded(self._shard, fenced.epoch, fenced.fences.epoch)
            return
        if verdict == "void" and self._is_serving:
            self._mend(record.key() or b"")
        self._run(read_back.read(record.offset()))
        self._remove_fences()

    def _remove_fences(self) -> None:
        """Those of earlier epochs, once everything before the home's own is mended."""
        for epoch in self._fenced.fences.removable():
            if epoch not in self._removed:
                self._removed.add(epoch)
                self._remove(fence_key(epoch))
