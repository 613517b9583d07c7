"""Tables as lines of text that fit a width. Cells are never cut: a table that does not fit is laid out in another
form."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

GAP = "  "
RULE = "─"
LEAST_WRAPPED = 16
"""A column of prose is not wrapped to less than this."""

_WORD = re.compile(r"(\s*)(\S+)")

Line = tuple[str, bool]
"""A line, and whether it holds column headings."""


class Column(NamedTuple):
    """`is_number`: right-aligned. `is_prose`: may be wrapped at spaces; ids and names must not be."""

    heading: str
    is_number: bool = False
    is_prose: bool = False


class Form(Enum):
    """How to show a table that is too wide."""

    VERTICAL = "one line per cell, even if a table would fit"
    VERTICAL_IF_WIDE = "one line per cell"
    SPLIT_IF_WIDE = "several tables, each with the first column"
    TABLE = "a table, wider than the terminal"


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, form: Form) -> Iterator[Line]:
    """The lines of a table of one-line cells. `width` is in terminal cells."""
    natural = [max(map(cell_len, [column.heading, *cells])) for column, cells in _by_column(columns, rows)]
    widths = _fitting(columns, natural, width)
    if form is Form.TABLE:
        widths = natural
    if form is Form.VERTICAL or (widths is None and form is not Form.SPLIT_IF_WIDE):
        return _vertical(columns, rows)
    if widths is None:
        return _split(columns, rows, natural, width)
    return _table(columns, rows, widths)


def _by_column(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterable[tuple[Column, Sequence[str]]]:
    return ((column, [row[n] for row in rows]) for n, column in enumerate(columns))


def _fitting(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int] | None:
    """Widths of the columns, those of prose narrowed if needed; None if the table does not fit."""
    widths = list(natural)
    prose = [n for n, column in enumerate(columns) if column.is_prose]
    left = width - len(GAP) * (len(columns) - 1) - sum(w for n, w in enumerate(widths) if n not in prose)
    for done, n in enumerate(sorted(prose, key=natural.__getitem__)):  # narrow columns leave more to wide ones
        widths[n] = min(natural[n], left // (len(prose) - done))
        left -= widths[n]
        if widths[n] < min(natural[n], LEAST_WRAPPED):
            return None
    return widths if left >= 0 else None


def _table(columns: Sequence[Column], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[Line]:
    yield _line(columns, [column.heading for column in columns], widths), True
    yield GAP.join(RULE * width for width in widths), False
    for row in rows:
        wrapped = [_wrapped(text, width) for text, width in zip(row, widths, strict=True)]
        for n in range(max(map(len, wrapped), default=1)):
            yield _line(columns, [part[n] if n < len(part) else "" for part in wrapped], widths), False


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, text, width in zip(columns, cells, widths, strict=True):
        blank = " " * (width - cell_len(text))
        padded.append(blank + text if column.is_number else text + blank)
    return GAP.join(padded).rstrip(" ")


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` terminal cells: broken at spaces, and within a word that is wider."""
    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    for gap, word in _WORD.findall(text):
        first, *more = chop_cells(word, width)
        if lines and cell_len(lines[-1] + gap + first) <= width:
            lines[-1] += gap + first
        else:
            lines.append(first)
        lines += more
    return lines


def _vertical(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    width = max((cell_len(column.heading) for column in columns), default=0)
    names = [column.heading + " " * (width - cell_len(column.heading)) for column in columns]
    for number, row in enumerate(rows, 1):
        yield f"{RULE * 2} {number} {RULE * 2}", False
        for name, text in zip(names, row, strict=True):
            yield f"{name}{GAP}{text}".rstrip(" "), False


def _split(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], natural: Sequence[int], width: int
) -> Iterator[Line]:
    """Tables of as many columns as fit, at least one besides the first."""
    parts: list[list[int]] = []
    for n in range(1, len(columns)):
        needed = sum(natural[m] + len(GAP) for m in [*parts[-1], n]) if parts else width + 1
        if natural[0] + needed <= width:
            parts[-1].append(n)
        else:
            parts.append([n])
    for first, part in zip([True] + [False] * len(parts), parts, strict=False):
        kept = [0, *part]
        if not first:
            yield "", False
        chosen = [columns[n] for n in kept]
        yield from _table(chosen, [[row[n] for n in kept] for row in rows], [natural[n] for n in kept])
