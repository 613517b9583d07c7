"""Figures, sizes, ages, times and payloads as text for people. Pure: times come in."""

from datetime import UTC, datetime
from typing import Literal

from gateway.console.parts import CUT, UNKNOWN, Cell
from schemas.visible import visible

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))


def plain_number(value: float | None) -> str:
    """Integers as they are, others with three digits; a dash for None."""
    if value is None:
        return UNKNOWN
    if value == int(value):
        return str(int(value))
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.0f}" if abs(value) >= 1 else f"{value:.6f}".rstrip("0")


def number(value: float | None) -> Cell:
    return Cell(plain_number(value), "number")


def bytes_words(count: float) -> str:
    """Such as `1.2 MB`, with decimal prefixes."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{plain_number(round(size) if unit == 'bytes' else size)} {unit}"
        size /= 1000
    return f"{plain_number(size)} TB"


def seconds_words(seconds: float) -> str:
    """A short time: `0.5 ms`, `20 ms`, `1.5 s`."""
    return f"{plain_number(seconds * 1000)} ms" if seconds < 1 else f"{plain_number(seconds)} s"


def age(seconds: float) -> str:
    """How long something is or was: `12 s`, `3 min`, `5 h`, `9 d`; never negative, whatever the clocks say."""
    for size, unit in _AGES:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def age_cell(at_ms: int | None, now: float) -> Cell:
    """The age of a time in ms since the epoch; its title has the time."""
    return Cell(UNKNOWN) if at_ms is None else Cell(age(now - at_ms / 1000), "time", moment(at_ms / 1000))


def moment(at: float) -> str:
    """Seconds since the epoch as UTC, to the second; a dash for what no calendar has."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def payload(data: bytes, most: int) -> tuple[Literal["text", "hex"], str]:
    """At most `most` bytes of a payload: as text if it is UTF-8 without control characters, else half as many
    in hex."""
    part, is_cut = data[:most], len(data) > most
    for dropped in range(4 if is_cut else 1):  # the cut may be within a character
        shown = _text(part[: len(part) - dropped])
        if shown is not None:
            return "text", visible(shown) + (CUT if is_cut else "")
    half = max(1, most // 2)
    return "hex", part[:half].hex(" ", 1) + (CUT if len(data) > half else "")


def _text(part: bytes) -> str | None:
    try:
        shown = part.decode()
    except UnicodeDecodeError:
        return None
    return None if any([character < " " and character not in "\t\r\n" for character in shown]) else shown
