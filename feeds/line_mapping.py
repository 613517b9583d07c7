"""Which columns or fields of a CSV or JSON line are stream, number and time (S2)."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from feeds.counter import STREAMS_MAX, Counter
from feeds.errors import FeedSettingsError

Unit: TypeAlias = Literal["s", "ms", "us", "ns", "iso"]


class LineMapping(Struct, frozen=True, kw_only=True):
    """Names of columns or fields. `stream` tells apart the parts of the source; without it all is one stream. `number`:
    its sequence number; without it there is none, unless a sequencer numbers the lines. `counter`: the number starts
    over, as 32-bit counters do; `near`: :mod:`edge.feeds.unwrap`, by part of the source (`""` without `stream`).
    `is_numbered`: lines come from a sequencer."""

    stream: str | None = None
    number: str | None = None
    time: str | None = None
    time_unit: Unit = "iso"
    counter: Counter | None = None
    near: Mapping[str, int] = {}
    streams_max: int = STREAMS_MAX
    is_numbered: bool = False

    def check(self) -> None:
        """Raises FeedSettingsError if options contradict each other."""
        if self.is_numbered and (self.number is not None or self.stream is not None):
            raise FeedSettingsError(
                "the sequencer's numbers run over all lines: remove `stream` and `number`, or the sequencer"
            )
        if self.counter is not None and self.number is None:
            raise FeedSettingsError("`counter` says how `number` starts over: set `number` too, or remove it")
        if self.near and self.counter is None:
            raise FeedSettingsError("`near` is for numbers that start over: set `counter`, or remove it")

    def names(self) -> dict[str, str]:
        """The names that are set, by what they are for."""
        found = {"stream": self.stream, "number": self.number, "time": self.time}
        return {use: name for use, name in found.items() if name is not None}
