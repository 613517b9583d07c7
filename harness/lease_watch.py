"""Follows the topic `leases` beside the gateways, so that tests and measurements know who owns what, and since when.

The owner of a shard is a fold over the topic (:mod:`gateway.cluster.lease_table`), so whoever reads it comes to the
same result as the gateways, and does not have to ask one that may be dead.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from gateway.cluster.lease_table import Lease, LeaseTable
from schemas.errors import RecordError
from schemas.leases import Claim, Claimant, decode_lease
from schemas.topics import NO_GROUP, Topics

_POLL_S: Final = 0.1
LOOK_S: Final = 0.005


class Change(NamedTuple):
    """A record was read at `at`, in seconds of the monotonic clock, and left this lease. `epoch`: that of the record,
    which may be lower than the lease's; `claimant`: who claims in it, None if the record is no claim."""

    at: float
    offset: int
    lease: Lease
    epoch: int
    claimant: Claimant | None


class LeaseWatch:
    """`with LeaseWatch(bootstrap, topics, shards) as leases:`; a thread reads from the beginning."""

    def __init__(self, bootstrap: str, topics: Topics, shards: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topics.leases, 0, 0)])
        self.table = LeaseTable(shards)
        self.changes: list[Change] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._read, name="leases", daemon=True)

    def __enter__(self) -> "LeaseWatch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_stopped = True
        self._thread.join()
        self._consumer.close()

    def lease(self, shard: int) -> Lease:
        with self._lock:
            return self.table[shard]

    def leases(self) -> list[Lease]:
        """Of all shards."""
        with self._lock:
            return [self.table[shard] for shard in range(len(self.table))]

    def owners(self) -> list[str | None]:
        """The name of each shard's owner."""
        return [lease.owner.name if lease.owner is not None else None for lease in self.leases()]

    def since(self, at: float) -> list[Change]:
        """What was read after `at`, in seconds of the monotonic clock."""
        with self._lock:
            return [change for change in self.changes if change.at >= at]

    def wait(self, condition: Callable[[list[Lease]], bool], timeout_s: float) -> bool:
        """Whether the leases met the condition in time."""
        deadline = time.monotonic() + timeout_s
        while not condition(self.leases()):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True

    def owners_by_epoch(self) -> dict[tuple[int, int], set[Claimant]]:
        """Who owned a shard in an epoch, as far as any prefix of the log says: the lease after each record."""
        found: dict[tuple[int, int], set[Claimant]] = {}
        with self._lock:
            for change in self.changes:
                if change.lease.owner is not None:
                    found.setdefault((change.lease.shard, change.lease.epoch), set()).add(change.lease.owner)
        return found

    def _read(self) -> None:
        while not self._is_stopped:
            record = self._consumer.poll(_POLL_S)
            if record is None or record.error() is not None:
                continue
            now = time.monotonic()
            try:
                key, value = decode_lease(record.key(), record.value())
            except RecordError:
                continue  # as the gateways do
            offset = record.offset() or 0
            with self._lock:
                lease = self.table.apply(offset, key, value)
                if lease is not None:
                    claimant = key.claimant if isinstance(value, Claim) else None
                    self.changes.append(Change(now, offset, lease, key.epoch, claimant))
