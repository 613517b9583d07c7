"""What tests of the adapter's parts share: settings, an intake that remembers, and a fold of an empty log."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.composer import Composer, Counts
from edge.feeds.adapter.resume import LogFold, Repeated
from edge.feeds.adapter.settings import AdapterSettings, load
from edge.feeds.adapter.sources.intake import Piece, SourceState
from edge.feeds.formats.moldudp64 import Downstream
from edge.feeds.source import Found, Malformed, SourceMessage
from feeds.message import FeedMessage
from feeds.synchronise import SynchroniseSettings

FEED, ADAPTER = "ships", "ships-a"


def written_settings(directory: Path, source: str, more: str = "") -> AdapterSettings:
    """Of a file with this [source] and further tables."""
    file = directory / "adapter.toml"
    file.write_text(f'[feed]\nname="{FEED}"\nslot="active"\nadapter="{ADAPTER}"\n[source]\n{source}\n{more}\n')
    return load(file)


def message(
    number: int | None, payload: bytes = b"x", stream: str = "src@0", at_us: int | None = None
) -> SourceMessage:
    return SourceMessage(stream, number, payload, at_us, {"session": "S"})


def composer(
    log: LogFold | None = None, repeated: Repeated | None = None, streams: int = 100
) -> tuple[Composer, Counts]:
    """One that writes nothing administrative."""
    counts = Counts()
    administration = Administration(FEED, ADAPTER, SynchroniseSettings(), 60.0)
    log = log or LogFold(ADAPTER, None)
    return Composer(ADAPTER, log, repeated or Repeated(), administration, counts, streams), counts


def numbers(written: Iterable[Any]) -> list[int]:
    """The numbers of messages of the source."""
    return [one.sequence for one in written if isinstance(one, FeedMessage) and not one.part]


class KeptIntake:
    """Takes everything; `capacity`: how many pieces it has space for when it is offered one."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self.pieces: list[Piece] = []
        self.states: list[SourceState] = []
        self.capacity = capacity
        self.dropped = self.datagrams_lost = 0
        self.known: dict[str, int] = {}

    @property
    def found(self) -> list[Found | Downstream]:
        return [one for piece in self.pieces for one in piece.found]

    @property
    def payloads(self) -> list[bytes]:
        return [one.payload for one in self.found if isinstance(one, SourceMessage)]

    @property
    def malformed(self) -> list[Malformed]:
        return [one for one in self.found if isinstance(one, Malformed)]

    async def take(self, piece: Piece) -> None:
        self.pieces.append(piece)

    def offer(self, piece: Piece) -> bool:
        if len(self.pieces) >= self.capacity:
            self.dropped += 1
            return False
        self.pieces.append(piece)
        return True

    def is_now(self, state: SourceState, reason: str = "") -> None:
        self.states.append(state)

    def lost_datagrams(self, count: int) -> None:
        self.datagrams_lost += count

    def highest(self) -> Mapping[str, int]:
        return self.known

    def last(self) -> Mapping[str, int]:
        return self.known
