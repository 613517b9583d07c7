"""Parts of a page: sections with plots and tables, as values; :mod:`jobs.report.page` renders them as HTML.

Names that clients chose (client ids, topics, users) are shown unchanged except for non-printable characters, which
could change the text's direction, or hide.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jobs.output import visible

Row = dict[str, Any]
"""A row of a result, by column name."""

NAME_LENGTH = 60
"""A longer name is cut; its title has the whole name, up to `TITLE_LENGTH`."""
TITLE_LENGTH = 1000
CUT = "…"
UNKNOWN = "–"


class Cell(NamedTuple):
    """`kind` is `number`, `time`, `name` (chosen by a client) or `text`. `title` is the whole of a name that was cut;
    `share`, from 0 to 1, is drawn as a bar next to a number."""

    text: str
    kind: str = "text"
    title: str = ""
    share: float | None = None


class PageTable(NamedTuple):
    """`headings` of the columns; `empty` is the sentence shown if there are no `rows`."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str


class Plot(NamedTuple):
    """An `<svg>` element whose label describes it, and the caption below it."""

    svg: str
    caption: str


class Section(NamedTuple):
    """`anchor` is its id; `lead` explains how to read the figures, `points` are what to look at first."""

    anchor: str
    title: str
    lead: str
    plots: Sequence[Plot] = ()
    tables: Sequence[PageTable] = ()
    points: Sequence[str] = ()


def number(value: float | None, share: float | None = None) -> Cell:
    """A count, or a measure with three digits; empty for None."""
    if value is None:
        return Cell(UNKNOWN, "number")
    return Cell(plain_number(value), "number", share=share)


def ranked(rows: Iterable[Row], column: str) -> list[tuple[Row, Cell]]:
    """Each row with its number in `column` and a bar, full length for the largest."""
    known = list(rows)
    greatest = max((row[column] for row in known), default=0)
    return [(row, number(row[column], row[column] / greatest if greatest else 0.0)) for row in known]


def name(text: str | None) -> Cell:
    """A name that a client chose; a dash for none."""
    if text is None:
        return Cell(UNKNOWN)
    shown = visible(text)
    if len(shown) <= NAME_LENGTH:
        return Cell(shown, "name")
    whole = shown if len(shown) <= TITLE_LENGTH else shown[:TITLE_LENGTH] + CUT
    return Cell(shown[:NAME_LENGTH] + CUT, "name", whole)


def moment(at: datetime | None) -> Cell:
    """A time, UTC, to the second."""
    return Cell(UNKNOWN if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", "time")


def plain_number(value: float) -> str:
    """Without separators and exponents, so that it can be copied: counts as integers, others with three digits."""
    if value == int(value):
        return str(int(value))
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.0f}" if abs(value) >= 1 else f"{value:.6f}".rstrip("0")


def bytes_words(count: int) -> str:
    """Such as `1.2 MB`, with decimal prefixes."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{plain_number(size if unit != 'bytes' else count)} {unit}"
        size /= 1000
    return f"{plain_number(size)} TB"
