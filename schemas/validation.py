"""Finds every problem of a table read from TOML, and says in plain words what is allowed and what was probably meant.

msgspec decides what is allowed, by the types of a :class:`schemas.sections.Section`. But it stops at the first error
and shows patterns; here each key is checked separately, and its type is described.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from schemas.errors import SettingsError
from schemas.sections import Section

Key = tuple[str | int, ...]
Table = Mapping[str, Any]
SectionType = TypeVar("SectionType", bound=Section)

_NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "a table"}


PROBLEMS_SHOWN = 20


class Problem(NamedTuple):
    """`key`: the path in the table; `text`: a sentence with the key, its value and what is allowed."""

    key: Key
    text: str


def settings_error(sentences: Sequence[str]) -> SettingsError:
    """One error for all problems: its sentence, or a list."""
    if len(sentences) == 1:
        return SettingsError(sentences[0])
    more = [f"… and {len(sentences) - PROBLEMS_SHOWN} more"] if len(sentences) > PROBLEMS_SHOWN else []
    lines = (f"the configuration has {len(sentences)} errors:", *sentences[:PROBLEMS_SHOWN], *more)
    return SettingsError("\n- ".join(lines))


def convert(table: Table, section: type[SectionType]) -> SectionType | list[Problem]:
    """The table as a `section`, or all its problems."""
    if _is_finite(table):
        with suppress(msgspec.ValidationError):
            return msgspec.convert(table, section)
    return list(_in_section(table, section, (), section))


def dotted(path: Key) -> str:
    """A key as in TOML: `gateway.limits`, `kafka.client."sasl.password"`; an item of a list as `methods[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("_", "").replace("-", "")
            text += ("." if text else "") + (part if bare.isascii() and bare.isalnum() else _toml(part))
    return text


def paths(section: type[Section], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All settings below a section."""
    for name, declared in _fields(section).items():
        if _is_section(declared):
            yield from paths(declared, (*path, name))
        else:
            yield (*path, name)


def type_of(path: tuple[str, ...], section: type[Section]) -> Any:
    """The declared type of a setting; `path` must be one of `paths(section)`."""
    declared: Any = section
    for part in path:
        declared = _fields(declared)[part]
    return declared


def not_a_setting(path: tuple[str, ...], section: type[Section]) -> str | None:
    """The sentence about a path that is not a setting of `section`; None if it is one."""
    declared: Any = section
    for number, part in enumerate(path):
        if not _is_section(declared):
            return f"{dotted(path[:number])} must be set as a whole: expected {allowed(declared)}"
        if part not in _fields(declared):
            is_table = number < len(path) - 1
            return unknown_key(path[: number + 1], {} if is_table else None, declared, section)
        declared = _fields(declared)[part]
    return f"[{dotted(path)}] is a table: set its keys one by one" if _is_section(declared) else None


def from_text(text: str, declared: Any) -> Any:
    """The value of an environment variable's text for a setting of this type: the text if that is allowed, otherwise
    its value in TOML, or the text again if it is not TOML."""
    if _fits(text, declared):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def unknown_key(path: Key, value: Any, section: type[Section], root: type[Section]) -> str:
    """The sentence about a key that `section` lacks: what was probably meant, or else all keys it has."""
    name, fields = str(path[-1]), _fields(section)
    what = f"[{dotted(path)}] is not a table" if isinstance(value, dict) else f"{dotted(path)} is not a setting"
    here = f"[{dotted(path[:-1])}]" if len(path) > 1 else "The top level"
    elsewhere = [found for found in paths(root) if found[-1] == name]
    if len(elsewhere) == 1:
        return f"{what}. Did you mean {dotted(elsewhere[0])}?"
    if close := get_close_matches(name.lower(), fields, 1):
        meant = (*path[:-1], close[0])
        return f"{what}. Did you mean {f'[{dotted(meant)}]' if isinstance(value, dict) else dotted(meant)}?"
    return f"{what}. {here} has: {', '.join(sorted(fields))}"


def not_allowed(path: Key, value: Any, declared: Any) -> str:
    """The sentence about a value that its type does not allow."""
    shown = _toml(value)
    if _plain(declared) is dict or _is_section(declared) or isinstance(value, dict):
        shown = f"({_name(value)})"  # it may contain a secret
    text = f"{dotted(path)} = {shown} is not allowed: expected {allowed(declared)}"
    meant = _meant(value, declared)
    return text if meant is None else f"{text}. Did you mean {_toml(meant)}?"


def allowed(declared: Any) -> str:
    """The values that a type allows: `a whole number from 0 to 65535, or "off"`."""
    kind, arguments = get_origin(declared), get_args(declared)
    if kind is Literal:
        words = ", ".join(map(_toml, arguments))
        return words if len(arguments) == 1 else f"one of {words}"
    if kind is Union or kind is UnionType:
        return ", or ".join(map(allowed, arguments))
    if _plain(declared) in (list, tuple):
        some = "" if _fits([], declared) else ", not empty"
        return f"a list in brackets{some}; each item: {allowed(get_args(_unannotated(declared))[0])}"
    return _allowed(inspect.type_info(declared))


def _in_section(table: Any, section: type[Section], path: Key, root: type[Section]) -> Iterator[Problem]:
    if not isinstance(table, dict):
        yield Problem(path, f"{dotted(path)} = {_toml(table)} is not allowed: expected a table, [{dotted(path)}]")
        return
    fields = _fields(section)
    for name, value in table.items():
        if name in fields:
            yield from _in_value(value, fields[name], (*path, name), root)
        else:
            yield Problem((*path, name), unknown_key((*path, name), value, section, root))
    if table.keys() - fields.keys():
        return  # what is missing may be present under a wrong name
    for field in msgspec.structs.fields(section):
        if field.required and field.encode_name not in table:
            key = (*path, field.encode_name)
            yield Problem(path, f"{dotted(key)} is missing: expected {allowed(field.type)}")


def _in_value(value: Any, declared: Any, path: Key, root: type[Section]) -> Iterator[Problem]:
    if _is_section(declared):
        yield from _in_section(value, declared, path, root)
        return
    found: list[Problem] = []
    kind, arguments = _plain(declared), get_args(_unannotated(declared))
    if kind in (list, tuple) and isinstance(value, list):
        for number, item in enumerate(value):
            found += _in_value(item, arguments[0], (*path, number), root)
    elif kind is dict and isinstance(value, dict):
        for name, item in value.items():
            if not _fits(item, arguments[1]):
                text = f"{dotted((*path, name))} is {_name(item)}: expected {allowed(arguments[1])}, in quotes"
                found.append(Problem((*path, name), text))
    yield from found
    if not found and not _fits(value, declared):
        yield Problem(path, not_allowed(path, value, declared))


def _is_finite(value: Any) -> bool:
    """Whether the value contains no `inf` and no `nan`, which TOML has but no setting allows."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


def _fits(value: Any, declared: Any) -> bool:
    if not _is_finite(value):
        return False
    try:
        msgspec.convert(value, declared)
    except msgspec.ValidationError:
        return False
    return True


def _meant(value: Any, declared: Any) -> Any:
    """An allowed value that was probably meant; None if there is none."""
    likely: list[Any] = []
    if isinstance(value, str):
        if _plain(declared) in (list, tuple):
            likely.append([part.strip(" \"'") for part in value.strip("[]").split(",")])
        likely += get_close_matches(value.strip(" \"'").lower(), _choices(declared), 1)
        with suppress(tomllib.TOMLDecodeError):
            likely.append(tomllib.loads(f"value = {value}")["value"])
    else:
        likely += [[value], str(value)]
    return next((guess for guess in likely if guess and _fits(guess, declared)), None)


def _choices(declared: Any) -> list[str]:
    """The words that a type allows."""
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    return [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return str((kind.extra_json_schema or {}).get("description") or _allowed(kind.type))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return ("a whole number" if isinstance(kind, inspect.IntType) else "a number") + _range(kind)
        case inspect.DictType():
            return 'a table of texts: { name = "value" }'
        case inspect.StructType(cls):
            return f"a table with {', '.join(_fields(cls))}"
        case inspect.StrType():
            return "text, not empty" if kind.min_length else "text in quotes"
    return str(kind)


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:g}" if isinstance(kind.ge, float) else f" from {kind.ge} to {kind.le}"
    bounds = {"at least": kind.ge, "above": kind.gt, "at most": kind.le, "below": kind.lt}
    return "".join(f", {word} {bound}" for word, bound in bounds.items() if bound is not None)


@cache
def _fields(section: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(section)}


def _is_section(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, Section)


def _unannotated(declared: Any) -> Any:
    return get_args(declared)[0] if get_origin(declared) is Annotated else declared


def _plain(declared: Any) -> Any:
    """For example, `list` for `Annotated[list[str], …]`."""
    return get_origin(_unannotated(declared))


def _name(value: Any) -> str:
    return _NAMES.get(type(value), "a date or time")


def _toml(value: Any) -> str:
    """The value as it would be written in the file."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False)
    return f"({_name(value)})" if isinstance(value, dict) else str(value)
