"""Where an adapter's messages go (S2). :mod:`edge.feeds.adapter.kafka_output` writes `feed.<name>`."""

from collections.abc import Sequence
from typing import Protocol

from edge.feeds.adapter.resume import Outgoing
from schemas.feed_words import Slot


class Output(Protocol):
    """A place that all batches are written to, one at a time, in order."""

    async def open(self) -> None:
        """Returns once it can be written to."""

    async def write(self, slot: Slot, batch: Sequence[Outgoing]) -> None:
        """Returns once all of the batch is stored. It may be cancelled; then it is not known what is stored."""

    async def close(self) -> None:
        """Releases what it holds."""
