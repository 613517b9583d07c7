"""What a parser of a source format returns: messages of the source, and reports of malformed input (S2).

A **stream** is the source stream id, `name@epoch` or `name/part@epoch`: within it numbers are consecutive, and
different streams have no common order. A source that numbers anew begins a greater epoch, a whole number.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from edge.feeds.errors import FrameError

NUMBER_MAX: Final = 2**63 - 1
"""The greatest source sequence number: what a signed 64-bit column holds. MoldUDP64 would allow one bit more."""
TIME_US_MAX: Final = 2**63 - 1
STREAM_BYTES_MAX: Final = 200
_SHOWN: Final = 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_IN_TOPICS: Final = frozenset("+#")

Field: TypeAlias = str | int | float


class SourceMessage(Struct, frozen=True):
    """One message of a source.

    `number`: its source sequence number in `stream`, at most NUMBER_MAX; None if the source has none. `payload`: the
    line, record or message exactly as the source wrote it, without line end and without the sequencer's prefix.
    `at_us`: the source's own time, microseconds since 1970 UTC; None if it states none. `fields`: what the parser found
    in it.
    """

    stream: str
    number: int | None
    payload: bytes
    at_us: int | None
    fields: Mapping[str, Field]


class Malformed(Struct, frozen=True):
    """Input that is no message.

    `position`: the offset of the frame's first byte since the input began; for datagrams, how many came before.
    `stream` and `number` are set if they could be read: this number is used up, and no message with it will come.
    """

    position: int
    reason: str
    stream: str | None = None
    number: int | None = None


Found: TypeAlias = SourceMessage | Malformed


def checked_stream(text: str) -> str:
    """The source stream id, which is also part of a topic. Raises FrameError."""
    if not text or len(text.encode(errors="replace")) > STREAM_BYTES_MAX:
        raise FrameError(f"a stream id has 1 to {STREAM_BYTES_MAX} bytes, unlike {quoted(text)}")
    if not text.isprintable() or not _NOT_IN_TOPICS.isdisjoint(text):
        raise FrameError(f"a stream id has no control characters, '+' or '#', unlike {quoted(text)}")
    return text


def stream_id(name: str, part: str | None, epoch: int) -> str:
    """The id of a stream of the source `name`; `part` tells its streams apart. Raises FrameError."""
    return checked_stream(f"{name}@{epoch}" if part is None else f"{name}/{part}@{epoch}")


def checked_number(number: int) -> int:
    """A source sequence number. Raises FrameError."""
    if not 0 <= number <= NUMBER_MAX:
        raise FrameError(f"a sequence number is 0 to {NUMBER_MAX}, unlike {quoted(str(number))}")
    return number


def micros(at: datetime) -> int:
    """Microseconds since 1970 UTC; `at` has a time zone."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def quoted(text: str | bytes) -> str:
    """Input in a reason: shortened, control characters escaped."""
    shown = repr(text[:_SHOWN]).removeprefix("b")
    return f"{shown}…" if len(text) > _SHOWN else shown
