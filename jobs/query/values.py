"""Exact values of every DuckDB type, as text, JSON and CSV.

Python has no dates after 9999, no nanoseconds and no infinite times. So DuckDB itself writes values as text
(:func:`expression`), nested ones as JSON, and :func:`reader` converts that to what the formats print:

* text stays text, a number is a :class:`Number`, a BLOB bytes, a list or struct a list or dict of these, a map a dict;
* times are ISO 8601, `Z` for UTC; what ISO 8601 cannot express is as in DuckDB: `infinity`, `0044-03-15 (BC)`.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jobs.output import bytes_text, cell, visible


class Number(str):
    """A number as DuckDB writes it, with all its digits; also `nan`, `inf` and `-inf`."""

    __slots__ = ()

    @property
    def is_finite(self) -> bool:
        return self.lstrip("-")[:1].isdigit()


Value = Number | str | bytes | bool | list[Any] | dict[str, Any] | None


class DuckDBType(Protocol):
    """The part of DuckDB's types used here: `id` such as `list`, `children` such as `[("child", …)]`."""

    @property
    def id(self) -> str: ...

    @property
    def children(self) -> list[tuple[str, Any]]: ...


INTEGERS = {"tinyint", "smallint", "integer", "bigint", "hugeint", "bignum", "varint"}
INTEGERS |= {"utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"}
NUMBERS = INTEGERS | {"float", "double", "decimal"}
NESTED = {"list", "array", "struct", "map", "union", "tuple", "row", "variant"}
ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))?(\+00)?")
NEEDS_QUOTES = re.compile(r'[,"\r\n\0]|^\s|\s$|^$')


def expression(kind: DuckDBType, column: str) -> str:
    """SQL that returns a column of this type in the form that :func:`reader` expects."""
    if kind.id == "blob":
        return column
    return f"CAST(to_json({column}) AS VARCHAR)" if kind.id in NESTED else f"CAST({column} AS VARCHAR)"


def reader(kind: DuckDBType) -> Callable[[Any], Value]:
    """A function that converts the result of :func:`expression` to a value."""
    if kind.id in NESTED:
        within = _within(kind)
        return lambda text: None if text is None else within(_parsed(text))
    if kind.id == "boolean":
        return lambda text: None if text is None else text == "true"
    if kind.id in NUMBERS:
        return lambda text: None if text is None else Number(text)
    if kind.id.startswith("timestamp"):
        return lambda text: None if text is None else iso_time(text)
    return lambda value: value


def iso_time(text: str) -> str:
    """DuckDB's `2026-01-02 03:04:05.6+00` as `2026-01-02T03:04:05.600000Z`; other texts unchanged."""
    found = ISO_TIME.fullmatch(text)
    if found is None:
        return text
    day, time, fraction, is_utc = found.groups()
    shown = f".{(fraction or ''):0<6}" if fraction or is_utc else ""
    return f"{day}T{time}{shown}{'Z' if is_utc else ''}"


def to_json(value: Value) -> str:
    """The value as JSON (RFC 8259). Numbers have all their digits; NaN and infinities are null."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number():
            return value if value.is_finite else "null"
        case bytes():
            return json.dumps(bytes_text(value))
        case list():
            return f"[{', '.join(map(to_json, value))}]"
        case dict():
            return f"{{{', '.join(f'{_quoted(name)}: {to_json(one)}' for name, one in value.items())}}}"
    return _quoted(value)


def to_csv(value: Value) -> str:
    """The value as a field of CSV (RFC 4180): nothing for NULL, `""` for empty text, JSON for lists and the like."""
    match value:
        case None:
            return ""
        case Number():
            return value
    text = value if isinstance(value, str) else bytes_text(value) if isinstance(value, bytes) else to_json(value)
    return '"' + text.replace('"', '""') + '"' if NEEDS_QUOTES.search(text) else text


def to_cell(value: Value) -> str:
    """The value for people, on one line: bytes as UTF-8, non-printable characters escaped."""
    match value:
        case None:
            return ""
        case bool() | list() | dict():
            return visible(to_json(value))
        case bytes():
            return cell(value.decode(errors="backslashreplace"))
    return visible(value)


def unique(names: Sequence[str]) -> list[str]:
    """Column names made unique: the second `a` is `a_1`."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    found = []
    for name in names:
        number, one = 0, name
        while one in seen or (number and one in taken):
            number += 1
            one = f"{name}_{number}"
        seen.add(one)
        found.append(one)
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def _within(kind: DuckDBType) -> Callable[[Any], Value]:
    """A function that converts parsed JSON to a value: times and bytes are texts there."""
    match kind.id:
        case "list" | "array":
            one = _within(kind.children[0][1])
            return lambda parsed: None if parsed is None else [one(part) for part in parsed]
        case "tuple" | "row":
            each = [_within(child) for _, child in kind.children]
            return lambda parsed: None if parsed is None else [f(part) for f, part in zip(each, parsed, strict=True)]
        case "struct" | "union":
            named = {name: _within(child) for name, child in kind.children}
            return lambda parsed: None if parsed is None else {name: named[name](part) for name, part in parsed.items()}
        case "map":
            values = _within(kind.children[1][1])
            return lambda parsed: None if parsed is None else {name: values(part) for name, part in parsed.items()}
        case "blob":  # in text written by DuckDB a backslash always starts an escape
            return lambda parsed: None if parsed is None else parsed.replace(r"\x22", '"').replace(r"\x27", "'")
        case name if name.startswith("timestamp"):
            return lambda parsed: None if parsed is None else iso_time(parsed)
    return lambda parsed: parsed
