"""Which clients are finished with a message that others wait for: what a restart must know besides positions (Q1).

A message with a thousand recipients and a slow one is long unfinished. Each checkpoint writes only who has finished
since the one before, as one part; the parts of a message are deleted when nobody needs them. That is one commit later
than the message ends: until a marker without its position is committed, a restart reads it again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway.shard.messages import PendingMessage
from gateway.shard.spool_batch import Part


class FinishedClients:
    """Of one shard, by position on `egress`. Pure."""

    def __init__(self) -> None:
        self._parts: dict[int, int] = {}
        self._earlier: dict[int, list[str]] = {}
        self._ended: list[tuple[int, int]] = []
        self._to_delete: list[tuple[int, int]] = []

    def restore(
        self, clients: Mapping[int, list[str]], parts: Mapping[int, int], is_needed: Callable[[int], bool]
    ) -> None:
        """What the spool knows; of positions that are not needed any more the parts are deleted."""
        self._parts = {position: count for position, count in parts.items() if is_needed(position)}
        self._to_delete = [(position, count) for position, count in parts.items() if not is_needed(position)]
        self._earlier = {position: names for position, names in clients.items() if is_needed(position)}

    def take(self, position: int) -> Sequence[str]:
        """The clients that an earlier life of the home has finished with the message there; the message is here now."""
        return self._earlier.pop(position, ())

    def ended(self, position: int) -> None:
        """Nobody waits for the message any more, or the spool has it."""
        parts = self._parts.pop(position, 0)
        if parts:
            self._ended.append((position, parts))

    def write(self, live: Iterable[PendingMessage]) -> tuple[dict[Part, list[str]], list[tuple[int, int]]]:
        """What the next commit writes, and deletes (:class:`gateway.shard.spool_batch.SpoolBatch`)."""
        written: dict[Part, list[str]] = {}
        for pending in live:
            if pending.finished:
                part = self._parts.get(pending.position, 0)
                written[pending.position, part], pending.finished = pending.finished, []
                self._parts[pending.position] = part + 1
        deleted, self._to_delete, self._ended = self._to_delete, self._ended, []
        return written, deleted
