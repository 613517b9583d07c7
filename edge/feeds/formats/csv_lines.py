"""CSV lines with a mapping. RFC 4180 with other dialects; a record is one line, so a quoted value has no line end."""

import csv
from typing import Final

from msgspec import Struct

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content, LineFormat
from edge.feeds.formats.mapping import MappedValues
from edge.feeds.source import quoted
from feeds.errors import FeedSettingsError
from feeds.line_mapping import LineMapping

UTF8_BOM: Final = "\ufeff"


class CsvDialect(Struct, frozen=True, kw_only=True):
    """How the lines are written. `columns`: their names, in order; empty: the first line of the input names them."""

    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    skips_spaces: bool = False
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"


def csv_lines(mapping: LineMapping, dialect: CsvDialect | None = None) -> LineFormat:
    """The format. A line has as many values as there are columns. Raises FeedSettingsError."""
    return _CsvLines(mapping, dialect or CsvDialect())


class _CsvLines:
    def __init__(self, mapping: LineMapping, dialect: CsvDialect) -> None:
        self._values = MappedValues(mapping)
        self._names = mapping.names()
        self._dialect = dialect
        self._count = 0
        self._at: dict[str, int] = {}
        if mapping.is_numbered and not dialect.columns:
            raise FeedSettingsError("numbered lines have no header line: name the `columns`")
        try:
            bytes(4).decode(dialect.encoding)  # not every codec is one of text
            self._split("a")
        except (TypeError, ValueError, LookupError) as error:
            raise FeedSettingsError(f"the CSV dialect is not possible: {error}") from error
        if dialect.columns:
            self._set_columns(list(dialect.columns))

    def __call__(self, line: bytes) -> Content | None:
        try:
            text = line.decode(self._dialect.encoding)
            values = self._split(text)
        except UnicodeError as error:
            raise FrameError(f"the line is not {self._dialect.encoding}: {error}") from error
        except (csv.Error, StopIteration) as error:
            raise FrameError(f"no CSV line: {error}") from error
        if not values:
            raise FrameError("the line has nothing but a byte order mark")
        if not self._count:
            self._read_header(values)
            return None
        if len(values) != self._count:
            raise FrameError(f"the line has {len(values)} values, there are {self._count} columns")
        return self._values.content({use: values[at] for use, at in self._at.items()})

    def _split(self, text: str) -> list[str]:
        dialect = self._dialect
        return next(
            csv.reader(
                [text],
                delimiter=dialect.delimiter,
                quotechar=dialect.quote or None,
                quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
                escapechar=dialect.escape,
                skipinitialspace=dialect.skips_spaces,
                strict=True,
            )
        )

    def _read_header(self, names: list[str]) -> None:
        names[0] = names[0].removeprefix(UTF8_BOM)
        try:
            self._set_columns(names)
        except FeedSettingsError as error:
            raise FrameError(f"no header line has come yet, and this is none: {error}") from error

    def _set_columns(self, columns: list[str]) -> None:
        if len(set(columns)) != len(columns):
            raise FeedSettingsError("two columns have the same name")
        for use, name in self._names.items():
            if name not in columns:
                raise FeedSettingsError(f"there is no column {quoted(name)} for the {use}")
            self._at[use] = columns.index(name)
        self._count = len(columns)
