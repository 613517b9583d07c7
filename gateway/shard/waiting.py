"""Records that wait, by partition of `ingress`. Pure."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Queue(Generic[T]):
    """Those of one partition, in order: the offset of the message, the record, its payload's size. `bytes` of all."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[int, T, int]] = deque()
        self.bytes = 0

    @property
    def first_offset(self) -> int:
        return self.items[0][0]


class WaitingRecords(dict[int, Queue[T]]):
    """Queues by partition; none is empty."""

    def append(self, partition: int, offset: int, record: T, payload: bytes | None) -> None:
        queue = self.setdefault(partition, Queue())
        queue.items.append((offset, record, len(payload or b"")))
        queue.bytes += len(payload or b"")

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
        """Of payload."""
        return sum(queue.bytes for queue in self.values())
