"""Which two adapters can be a redundant pair: those whose messages have numbers that both agree on (S2).

The numbers come from the source (MoldUDP64, miniSEED, a column), or from one sequencer in front of both. Messages are
never compared by content to find copies: 31 % of the frames in a recording of Mode S are legitimate repeats.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from feeds.counter import MINISEED, Counter
from feeds.errors import FeedSettingsError
from feeds.line_mapping import LineMapping


class SourceFormat(StrEnum):
    """The formats that adapters read."""

    MODE_S = "mode-s"
    NMEA0183 = "nmea0183"
    NMEA2000 = "nmea2000"
    MINISEED = "miniseed"
    MOLDUDP64 = "moldudp64"
    CSV = "csv"
    JSON = "json"


TITLES: Final = {
    SourceFormat.MODE_S: "Mode S",
    SourceFormat.NMEA0183: "NMEA 0183",
    SourceFormat.NMEA2000: "NMEA 2000",
    SourceFormat.MINISEED: "miniSEED",
    SourceFormat.MOLDUDP64: "MoldUDP64",
    SourceFormat.CSV: "CSV",
    SourceFormat.JSON: "JSON",
}
_NUMBERED: Final = (SourceFormat.MINISEED, SourceFormat.MOLDUDP64)
_MAPPED: Final = (SourceFormat.CSV, SourceFormat.JSON)


class FeedSource(Struct, frozen=True, kw_only=True):
    """What an adapter reads, as far as it decides on pairs. `name`: of the source, first part of its stream ids.
    `sequencer`: a name for the one `waystation feed sequence` that numbers its lines; None without one. `mapping`: of
    CSV and JSON. `counter`: of miniSEED's numbers. `epoch`: of the source's numbers; a sequencer and MoldUDP64 state it
    themselves."""

    format: SourceFormat
    name: str
    sequencer: str | None = None
    mapping: LineMapping | None = None
    counter: Counter = MINISEED
    epoch: int = 0

    def check(self) -> None:
        """Raises FeedSettingsError if options contradict each other."""
        if self.sequencer is not None and self.format in _NUMBERED:
            raise FeedSettingsError(f"{TITLES[self.format]} has numbers of its own: remove the sequencer")
        if (self.mapping is not None) is not (self.format in _MAPPED):
            raise FeedSettingsError(f"{TITLES[self.format]} {'has no' if self.mapping else 'needs a'} mapping")
        if self.mapping is not None:
            self.mapping.check()
            if self.mapping.is_numbered is not (self.sequencer is not None):
                raise FeedSettingsError(
                    "a sequencer is named if, and only if, the mapping says that lines are numbered"
                )


class Paired(Struct, frozen=True):
    """The two can be a pair. `numbers_from` says where the common numbers come from. `needs_near`: the numbers start
    over, so the adapter that starts later has to be told the highest number so far (:mod:`edge.feeds.unwrap`)."""

    numbers_from: str
    needs_near: bool = False


class Refused(Struct, frozen=True):
    """The two cannot be a pair; one adapter alone may carry the feed."""

    reason: str


def decide(one: FeedSource, other: FeedSource) -> Paired | Refused:
    """Whether two adapters can be a redundant pair. Raises FeedSettingsError if one of them is not possible alone."""
    one.check()
    other.check()
    if one.format is not other.format:
        return Refused(f"one adapter reads {TITLES[one.format]}, the other {TITLES[other.format]}")
    if one.name != other.name:
        return Refused(
            f"the adapters name their source differently ({one.name}, {other.name}), so their streams differ"
        )
    if (one.sequencer is None) is not (other.sequencer is None):
        return Refused("the lines of one adapter are numbered by a sequencer, those of the other are not")
    if one.sequencer is not None:
        return _sequenced(one, other)
    if one.format is SourceFormat.MOLDUDP64:
        return Paired("MoldUDP64's sequence numbers")
    if one.epoch != other.epoch:
        return Refused(f"the adapters are set to epochs {one.epoch} and {other.epoch}, so their streams differ")
    if one.format is SourceFormat.MINISEED:
        if one.counter != other.counter:
            return Refused("the adapters disagree on where miniSEED's numbers start over: set the same counter")
        return Paired("miniSEED's sequence numbers", needs_near=True)
    if one.mapping is not None and other.mapping is not None:
        return _mapped(one.mapping, other.mapping)
    return Refused(_without_numbers(f"{TITLES[one.format]} has no sequence numbers"))


def _sequenced(one: FeedSource, other: FeedSource) -> Paired | Refused:
    if one.sequencer != other.sequencer:
        return Refused(
            f"the sequencers {one.sequencer} and {other.sequencer} number independently: give both adapters "
            "the lines of one"
        )
    return Paired(f"the sequencer {one.sequencer}")


def _mapped(one: LineMapping, other: LineMapping) -> Paired | Refused:
    if one.number is None and other.number is None:
        return Refused(_without_numbers("the mapping names no sequence number"))
    # The same field may have another name at the other adapter, but only these two can say so; we cannot check it.
    if (one.stream, one.number, one.counter) != (other.stream, other.number, other.counter):
        return Refused(
            "the adapters take stream or number from different fields, or their numbers start over differently"
        )
    return Paired(f"the field {one.number}", needs_near=one.counter is not None)


def _without_numbers(why: str) -> str:
    return (
        f"{why}, so nobody can tell a repeat from a copy: put `waystation feed sequence` in front of both adapters, or "
        "use one adapter alone"
    )
