"""In which order a shard's two ways are applied: a sender's messages keep theirs, and each comes once (R8, M14). Pure.

The ways are *instructions* on `egress[shard]`, and *direct deliveries* of what the catch-up reader reads on `ingress`.
A sender's messages share a partition of `ingress`, and each way has a partition's messages in order: the reader reads
them so, each router emits them so, and a second router or a restart only repeats. So order is a matter of one partition
alone, and of five positions in it. Each is the offset of the first message that it does not cover:

* *direct from*: messages before it come by instruction only. The reader starts earlier, to learn which those are.
* *read to*: the reader has read these. Those that it has not passed wait (rule 2).
* *passed to*: these have been delivered directly to whoever gets them so, and it is known which are to be instructed.
* *expected to*: the end of the last passed message for which an instruction comes. Routing is a pure function, so the
  home knows that from the routes.
* *instructed to*: an instruction has come for the message before it. As routers emit in order, none is missing earlier.

A message goes to newer subscriptions directly, then to older ones by its instruction, and then comes the next message:

1. An instruction waits (is parked) until its message is passed, and behind others of its partition that are parked.
   One before *direct from* does not wait: no direct delivery comes before it.
2. A direct delivery waits until the instructions for passed messages have come (*instructed to* has reached *expected
   to*), and until none for an earlier message is parked. All later messages of the partition wait behind it.

Nobody waits in a circle. Partitions do not wait for one another; and within one an instruction waits for messages up to
its own, a direct delivery for earlier ones only, so that the earliest of all that wait can always go on. What is parked
behind a later message is a copy, or for no session here. `egress` is read on while a direct delivery waits.

A restart resumes from what a checkpoint noted. What waited to be delivered directly was not passed, and is read again.
What was parked was not applied: the shard's position on `egress` is not behind it, and it comes again. So does what was
applied but not finished, although *instructed to* covers it: so direct deliveries also wait until `egress` is read up
to where the last of it was.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from gateway.record import Record, size_of
from gateway.shard.ingress_record import IngressRecord
from gateway.shard.window import CopyWindows

T = TypeVar("T")


class Queue(Generic[T]):
    """Those of one partition, in order: the offset of the message, the record, its size. `bytes` of all."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[int, T, int]] = deque()
        self.bytes = 0

    @property
    def first_offset(self) -> int:
        return self.items[0][0]


class WaitingRecords(dict[int, Queue[T]]):
    """Queues by partition; none is empty."""

    def append(self, partition: int, offset: int, record: T, size: int) -> None:
        queue = self.setdefault(partition, Queue())
        queue.items.append((offset, record, size))
        queue.bytes += size

    def popleft(self, partition: int) -> tuple[int, T]:
        """The first record of a partition with its message's offset."""
        queue = self[partition]
        offset, record, size = queue.items.popleft()
        queue.bytes -= size
        if not queue.items:
            del self[partition]
        return offset, record

    @property
    def records(self) -> int:
        return sum(len(queue.items) for queue in self.values())

    @property
    def bytes(self) -> int:
        """Of keys, values and headers."""
        return sum(queue.bytes for queue in self.values())


class DeliveryOrder:
    """The positions of one shard and what waits, by partition of `ingress`. See the theory above.

    `passed_to` is None while nothing is read. `copies` tells the first instruction for a message, which delivers it,
    from later ones, once it is applied. `parked` are the instructions that wait, `waiting` the records of `ingress`.
    `left` are, by place on `ingress` until the instruction is there, clients whose newer subscription got no direct
    delivery because an older one was to bring the message: it has to come though the older one ends meanwhile.
    """

    def __init__(self) -> None:
        self.passed_to: dict[int, int] | None = None
        self.read_to: dict[int, int] = {}
        self.direct_from: dict[int, int] = {}
        self.parked: WaitingRecords[Record] = WaitingRecords()
        self.waiting: WaitingRecords[IngressRecord] = WaitingRecords()
        self.left: dict[tuple[int, int], Sequence[str]] = {}
        self._expected_to: dict[int, int] = {}
        self._unapplied_to: dict[int, int] = {}
        self.copies = CopyWindows()
        self._reread_to = 0

    def must_park(self, partition: int, offset: int) -> bool:
        """Rule 1: whether an instruction for this message must wait."""
        return partition in self.parked or self._is_unpassed(partition, offset)

    def park(self, partition: int, offset: int, record: Record) -> None:
        """Keeps an instruction for this message for later."""
        self.parked.append(partition, offset, record, size_of(record))
        self._note_unapplied(partition, offset)

    def unpark(self, partition: int) -> Record:
        """The first instruction parked for a partition; it waits no more."""
        return self.parked.popleft(partition)[1]

    def unparked(self) -> Iterator[Record]:
        """The instructions that need not wait any more; each is parked until it is given."""
        for partition, queue in list(self.parked.items()):
            while queue.items and not self._is_unpassed(partition, queue.first_offset):
                yield self.unpark(partition)

    def discard(self, partition: int, offset: int) -> None:
        """The instruction for this message has come, and cannot be read."""
        self._note_unapplied(partition, offset)
        self.left.pop((partition, offset), None)

    def take_left(self, partition: int, offset: int) -> Sequence[str]:
        """The clients that left this message to its instruction, which is there now."""
        return self.left.pop((partition, offset), ())

    def instructed_to(self, partition: int) -> int:
        """See above; 0 if no instruction has come."""
        return max(self._unapplied_to.get(partition, 0), self.copies.top(partition) + 1)

    def begin(self, passed_to: dict[int, int], direct_from: dict[int, int]) -> None:
        """The reader begins at `passed_to`."""
        self.passed_to, self.read_to, self.direct_from = dict(passed_to), dict(passed_to), dict(direct_from)

    def end(self) -> None:
        """The reader ends: no direct delivery comes any more."""
        self.passed_to = None
        self._expected_to.clear()

    def is_next(self, partition: int, offset: int) -> bool:
        """Whether the reader has still to read this message."""
        return self.passed_to is not None and offset >= self.read_to.get(partition, 0)

    def must_wait(self, partition: int, offset: int, position: int) -> bool:
        """Rule 2: whether a direct delivery of this message must wait; the shard is at `position` on `egress`."""
        parked = self.parked.get(partition)
        if position < self._reread_to or (parked is not None and parked.first_offset < offset):
            return True
        return self._expected_to.get(partition, 0) > self.instructed_to(partition)

    def wait(self, read: IngressRecord) -> None:
        """The reader has read a record, and cannot pass it yet."""
        record = read.record
        self.waiting.append(record.partition(), record.offset(), read, size_of(record))
        self.read_to[record.partition()] = record.offset() + 1

    def expect(self, partition: int, offset: int) -> None:
        """An instruction comes for the message that is passed next."""
        self._expected_to[partition] = offset + 1

    def leave(self, partition: int, offset: int, clients: Sequence[str]) -> None:
        """Clients' newer subscriptions leave the message that is passed next to their older ones."""
        self.left[partition, offset] = clients

    def passed(self, partition: int, offset: int) -> None:
        """The reader has passed this message, and those before it."""
        queue = self.waiting.get(partition)
        if queue is not None and queue.first_offset == offset:
            self.waiting.popleft(partition)
        if self.passed_to is not None:
            self.passed_to[partition] = offset + 1
            self.read_to[partition] = max(offset + 1, self.read_to[partition])

    def next_to_read(self) -> dict[int, int]:
        """By partition of which nothing waits, the offset that the reader is to read, and to pass, next."""
        return {p: at for p, at in (self.passed_to or {}).items() if p not in self.waiting}

    def pass_deleted(self, partition: int, offset: int, first: int) -> bool:
        """There is nothing to read between `offset` and `first`; whether the reader was there, and has passed that."""
        if first <= offset or self.next_to_read().get(partition) != offset or self.passed_to is None:
            return False
        self.passed_to[partition] = self.read_to[partition] = first
        return True

    def has_passed(self, ends: dict[int, int]) -> bool:
        """Whether no direct delivery can come any more that is before `ends`."""
        passed, start = self.passed_to, self.direct_from
        return passed is None or all(passed.get(p, 0) >= end or start.get(p, 0) >= end for p, end in ends.items())

    def unpassed(self, start: dict[int, int]) -> dict[int, int]:
        """What of `start` has not been passed since; what the reader has passed has gone to the subscriptions that were
        there, and must not come to a later one by another way."""
        return {p: max(start.get(p, 0), position) for p, position in (self.passed_to or {}).items()}

    def save_expected(self) -> dict[int, int]:
        """By partition the last passed message whose instruction a restart has to expect: still to come, or parked."""
        found = dict[int, int]()
        for partition, end in self._expected_to.items():
            parked = self.parked[partition].items if partition in self.parked else ()
            if end > self.instructed_to(partition):
                found[partition] = end - 1
            elif passed := [offset for offset, *_ in parked if offset < end]:
                found[partition] = max(passed)
        return found

    def restore(
        self,
        windows: list[tuple[str, int, int, bytes]],
        expected: dict[int, int],
        left: list[tuple[int, int, Sequence[str]]],
        reread_to: int,
    ) -> None:
        """Takes up what was saved. What was applied and not finished is on `egress` before `reread_to`."""
        self.copies.restore(windows)
        self._expected_to = {partition: offset + 1 for partition, offset in expected.items()}
        self.left = {(partition, offset): clients for partition, offset, clients in left}
        self._reread_to = reread_to

    def _is_unpassed(self, partition: int, offset: int) -> bool:
        """Whether a direct delivery may still come that is before the instruction for this message."""
        passed_to = self.passed_to
        if passed_to is None or offset < self.direct_from.get(partition, 0):
            return False
        return passed_to.get(partition, 0) <= offset

    def _note_unapplied(self, partition: int, offset: int) -> None:
        self._unapplied_to[partition] = max(self._unapplied_to.get(partition, 0), offset + 1)
