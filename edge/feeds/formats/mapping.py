"""Which columns or fields of a CSV or JSON line are stream, number and time."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from edge.feeds.errors import FeedSettingsError, FrameError
from edge.feeds.formats.lines import Content
from edge.feeds.source import TIME_US_MAX, checked_number, micros, quoted
from edge.feeds.unwrap import STREAMS_MAX, Counter, StreamUnwrapper

Unit: TypeAlias = Literal["s", "ms", "us", "ns", "iso"]
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)
_WITHOUT_PART: Final = ""


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


class MappedValues:
    """Makes a line's content of the values that a mapping names."""

    def __init__(self, mapping: LineMapping) -> None:
        mapping.check()
        self._mapping = mapping
        counter = mapping.counter
        self._unwrapper = None if counter is None else StreamUnwrapper(counter, mapping.near, mapping.streams_max)

    def content(self, values: Mapping[str, Any]) -> Content:
        """`values`: by use (`stream`, `number`, `time`), for each that the mapping names. Raises FrameError."""
        part = _part(values["stream"]) if "stream" in values else None
        number = _number(values["number"]) if "number" in values else None
        if number is not None and self._unwrapper is not None:
            number = self._unwrapper.unwrap(_WITHOUT_PART if part is None else part, number)
        try:
            at_us = _time(values["time"], self._mapping.time_unit) if "time" in values else None
        except FrameError as error:
            raise FrameError(str(error), part, number) from error
        return Content(at_us, {}, part, number)


def _part(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise FrameError(f"the stream is a text or a whole number, unlike {_shown(value)}")
    return str(value)


def _number(value: object) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrameError(f"the sequence number is a whole number, unlike {_shown(value)}")
    return checked_number(value)


def _time(value: object, unit: Unit) -> int:
    if unit == "iso":
        return _iso_time(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FrameError(f"the time is a number, unlike {_shown(value)}")
    per_second = _PER_SECOND[unit]
    at_us = value * 1_000_000 // per_second if isinstance(value, int) else round(value * (1_000_000 / per_second))
    if abs(at_us) > TIME_US_MAX:
        raise FrameError(f"the time {_shown(value)} is out of range: is `time_unit` right?")
    return at_us


def _iso_time(value: object) -> int:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise FrameError(f"the time is of ISO 8601, with a time zone, unlike {_shown(value)}")
    return micros(at)


def _shown(value: object) -> str:
    return quoted(value if isinstance(value, str) else repr(value))
