"""Which publishes of clients Kafka has: of the whole process, and of the clients of one shard (G8, R8). Pure."""

from collections.abc import Mapping

from gateway.counts import Counts
from gateway.shard.publish_turns import PublishTurns


class PublishesInFlight:
    """Of all clients of this process. `bytes_in_flight` are those of publishes that Kafka has not acknowledged yet;
    `stored_to` are the offsets of `ingress`, by partition, up to which publishes are acknowledged."""

    def __init__(self) -> None:
        self.bytes_in_flight = 0
        self.stored_to: dict[int, int] = {}

    def stored(self, partition: int, position: int) -> None:
        """Publishes before this position are acknowledged."""
        if position > self.stored_to.get(partition, 0):
            self.stored_to[partition] = position


class InboundPosition:
    """Up to where on `ingress` all publishes of one shard's clients are known here, by partition.

    The bus acknowledges the publishes to a partition in order. So while none is in flight there, all that are to come
    are behind whatever anybody's publish has reached. Each publish is counted once, here, for the process too. `turns`:
    of these clients, what waits before it goes to `ingress`.
    """

    def __init__(self, process: PublishesInFlight) -> None:
        self.turns = PublishTurns()
        self._process = process
        self._in_flight = Counts[int]()
        self._own: dict[int, int] = {}

    def restore(self, position: Mapping[int, int]) -> None:
        """What an earlier life of the home has read, or this one at its start."""
        for partition, offset in position.items():
            self._own[partition] = max(offset, self._own.get(partition, 0))

    def begun(self, partition: int, size: int = 0) -> None:
        """A publish of `size` bytes is on its way."""
        self._in_flight[partition] += 1
        self._process.bytes_in_flight += size

    def ended(self, partition: int, offset: int | None, size: int = 0) -> None:
        """A publish stands at `offset`, or was refused (None)."""
        process = self._process
        self._in_flight[partition] -= 1
        process.bytes_in_flight -= size
        if offset is not None:
            self._own[partition] = offset + 1
            process.stored(partition, offset + 1)

    @property
    def is_busy(self) -> bool:
        """Whether publishes are on their way."""
        return any(self._in_flight.values())

    def nothing_before(self, ends: Mapping[int, int]) -> None:
        """Where `ingress` ended a moment ago: idle shards need not read it again from where their last publish was."""
        self.restore({p: end for p, end in ends.items() if not self._in_flight[p]})

    def position(self) -> dict[int, int]:
        """By partition; a copy."""
        reached = self._process.stored_to
        idle = {p: max(to, self._own.get(p, 0)) for p, to in reached.items() if not self._in_flight[p]}
        return self._own | idle
