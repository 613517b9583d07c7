"""What sources hand over, and to whom."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from edge.feeds.adapter.resume import FilePlace
from edge.feeds.formats.moldudp64 import Downstream
from edge.feeds.source import Found

SourceState = Literal["up", "source_lost"]


class Piece(NamedTuple):
    """What a source brought, in its order, and when it was read. `place`: of a file, where to read on once all of it is
    stored."""

    found: Sequence[Found | Downstream]
    read_us: int
    place: FilePlace | None = None


class Intake(Protocol):
    """Takes what sources bring."""

    async def take(self, piece: Piece) -> None:
        """Takes it once there is space: the source waits."""

    def offer(self, piece: Piece) -> bool:
        """Takes it if there is space; otherwise it is dropped and counted, and the answer is False."""

    def is_now(self, state: SourceState, reason: str = "") -> None:
        """Whether the source is reached."""

    def lost_datagrams(self, count: int) -> None:
        """The kernel dropped so many datagrams."""

    def highest(self) -> Mapping[str, int]:
        """The highest number of each source stream so far, in either slot."""

    def last(self) -> Mapping[str, int]:
        """The highest number of each source stream that this adapter's slot has."""
