"""Makes a line's content of the columns or fields that a mapping names (:mod:`feeds.line_mapping`)."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content
from edge.feeds.source import TIME_US_MAX, checked_number, micros, quoted
from edge.feeds.unwrap import StreamUnwrapper
from feeds.line_mapping import LineMapping, Unit

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TIME_MAX: Final = (TIME_US_MAX + 1) * 1_000
"""Below this is each time in each unit."""
_DIGITS: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)
_WITHOUT_PART: Final = ""


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
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise FrameError(f"the time is a number, unlike {_shown(value)}")
    per_second = _PER_SECOND[unit]
    if abs(value) < _TIME_MAX:  # beyond that floats overflow below
        at_us = value * 1_000_000 // per_second if isinstance(value, int) else round(value * (1_000_000 / per_second))
        if abs(at_us) <= TIME_US_MAX:
            return at_us
    raise FrameError(f"the time {_shown(value)} is out of range: is `time_unit` right?")


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
