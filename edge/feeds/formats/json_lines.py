"""JSON lines with a mapping: one object a line. A name is that of a field, or a JSON Pointer (RFC 6901) if it begins
with `/`: `/header/number`."""

from typing import Any, Final

from msgspec import DecodeError, ValidationError
from msgspec.json import Decoder

from edge.feeds.errors import FrameError
from edge.feeds.formats.lines import Content, LineFormat
from edge.feeds.formats.mapping import MappedValues
from edge.feeds.source import quoted
from feeds.line_mapping import LineMapping

_DECODER: Final = Decoder(dict[str, Any])


def json_lines(mapping: LineMapping) -> LineFormat:
    """The format. Raises FeedSettingsError."""
    values = MappedValues(mapping)
    ways = {use: _way(name) for use, name in mapping.names().items()}

    def content(line: bytes) -> Content:
        try:
            found = _DECODER.decode(line)
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"no JSON object: {error}") from error
        return values.content({use: _at(found, way, use) for use, way in ways.items()})

    return content


def _way(name: str) -> tuple[str, ...]:
    if not name.startswith("/"):
        return (name,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in name[1:].split("/"))


def _at(value: Any, way: tuple[str, ...], use: str) -> Any:
    for name in way:
        if not isinstance(value, dict) or name not in value:
            raise FrameError(f"the object has no field {quoted(name)} for the {use}")
        value = value[name]
    return value
