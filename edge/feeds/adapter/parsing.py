"""The parser of an adapter's source, and how it begins in the middle of one (S2). Pure."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from edge.feeds.adapter.own_source import feed_source
from edge.feeds.formats.csv_lines import CsvDialect, csv_lines
from edge.feeds.formats.json_lines import json_lines
from edge.feeds.formats.lines import LineFormat, LineParser
from edge.feeds.formats.miniseed import MiniSeedParser
from edge.feeds.formats.mode_s import mode_s
from edge.feeds.formats.nmea0183 import nmea0183
from edge.feeds.formats.nmea2000 import nmea2000
from edge.feeds.source import Found
from feeds.line_mapping import LineMapping
from feeds.message import epoch_of, name_of

if TYPE_CHECKING:
    from edge.feeds.adapter.settings import AdapterSettings, SourceSection


class ByteParser(Protocol):
    """A parser of a stream of bytes; :mod:`edge.feeds.formats`."""

    @property
    def position(self) -> int: ...
    def feed(self, data: bytes) -> list[Found]: ...
    def end(self) -> list[Found]: ...
    def cut(self) -> list[Found]: ...


MakeParser = Callable[[Mapping[str, int]], ByteParser]
"""Makes one that knows the highest number of each source stream so far, for counters that start over."""


def parser_maker(settings: "AdapterSettings") -> MakeParser:
    """For all formats but MoldUDP64. Raises FeedSettingsError, at once and not later."""
    source, limits = settings.source, settings.limits
    found = feed_source(source, limits.streams)

    def make(highest: Mapping[str, int]) -> ByteParser:
        if source.format == "miniseed":
            return MiniSeedParser(
                source.name,
                epoch=source.epoch,
                counter=found.counter,
                near=highest,
                record_bytes=source.miniseed.record_bytes or None,
                record_bytes_max=limits.message_bytes,
                streams_max=limits.streams,
            )
        return LineParser(
            _line_format(settings, _near(found.mapping, source, highest)),
            source.name,
            epoch=source.epoch,
            is_numbered=bool(source.sequencer),
            line_bytes_max=limits.message_bytes,
        )

    make({})
    return make


def _line_format(settings: "AdapterSettings", mapping: LineMapping | None) -> LineFormat:
    source = settings.source
    match source.format:
        case "mode-s":
            return mode_s
        case "nmea0183":
            return nmea0183(needs_checksum=source.needs_checksum)
        case "nmea2000":
            return nmea2000
    assert mapping is not None
    if source.format == "json":
        return json_lines(mapping)
    csv = source.csv
    dialect = CsvDialect(
        delimiter=csv.delimiter,
        quote=csv.quote,
        escape=csv.escape or None,
        skips_spaces=csv.skips_spaces,
        columns=tuple(csv.columns),
        encoding=csv.encoding,
    )
    return csv_lines(mapping, dialect)


def _near(mapping: LineMapping | None, source: "SourceSection", highest: Mapping[str, int]) -> LineMapping | None:
    """The mapping with the highest number of each part of the source, in its present epoch."""
    if mapping is None or mapping.counter is None:
        return mapping
    beginning, near = f"{source.name}/", dict[str, int]()
    for stream, number in highest.items():
        name = name_of(stream)
        if epoch_of(stream) == source.epoch and (name == source.name or name.startswith(beginning)):
            near[name[len(beginning) :]] = number
    return msgspec.structs.replace(mapping, near=near)
