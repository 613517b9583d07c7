"""Whatever one thing is wrong in the configuration: the error names file, key and what is allowed."""

import json
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from schemas.errors import SettingsError
from schemas.settings import Settings, load_settings
from schemas.validation import paths, type_of

BASE = tomllib.loads((Path(__file__).parents[3] / "conf" / "base.toml").read_text())
KEYS = sorted(paths(Settings))
NAMES = {name for path in KEYS for name in path}


def leaves(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


DEFAULTS = dict(leaves(BASE))


def error_of(values: dict[tuple[str, ...], Any], file: Path) -> str:
    text = "".join(
        f"{'.'.join(path)} = {'{}' if value == {} else json.dumps(value)}\n" for path, value in values.items()
    )
    file.write_text(text)
    with pytest.raises(SettingsError) as raised:
        load_settings([file], {})
    return str(raised.value)


@st.composite
def misspelt(draw: st.DrawFn, word: str) -> str:
    """A slip of the keyboard that makes no other key of it."""
    at = draw(st.integers(0, len(word) - 1))
    letter = draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_"))
    slips = (
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
    )
    return draw(st.sampled_from(slips).filter(lambda slip: slip and slip not in NAMES))


def wrong_values(declared: Any) -> st.SearchStrategy[Any]:
    """Values of the wrong type, out of range, or not among those that there are."""
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    described = [inspect.type_info(kind) for kind in kinds]
    described = [kind.type if isinstance(kind, inspect.Metadata) else kind for kind in described]
    wrong: list[st.SearchStrategy[Any]] = []
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    takes = {type(kind) for kind in described}
    if inspect.StrType not in takes:
        wrong.append(st.text("abcdefg-\n'\"", max_size=12).filter(lambda text: text not in words))
    if inspect.BoolType not in takes:
        wrong.append(st.booleans())
    if not takes & {inspect.IntType, inspect.FloatType}:
        wrong.append(st.integers(-(2**62), 2**62))
    for kind in described:
        if isinstance(kind, (inspect.IntType, inspect.FloatType)):
            bounds = [bound - 1 for bound in (kind.ge, kind.gt) if bound is not None]
            bounds += [bound + 1 for bound in (kind.le, kind.lt) if bound is not None]
            wrong.append(st.sampled_from(bounds) if bounds else st.just("1"))
    if not takes & {inspect.ListType, inspect.VarTupleType}:
        wrong.append(st.lists(st.integers(), max_size=2))
    return st.one_of(wrong)


@settings(deadline=None)
@given(st.data())
def test_a_misspelt_key_is_named_with_its_file_and_what_was_meant(data: st.DataObject) -> None:
    """Or, if it has become quite another word, with the keys that its table has."""
    path = data.draw(st.sampled_from(KEYS))
    level = data.draw(st.integers(0, len(path) - 1))
    slip = data.draw(misspelt(path[level]))
    wrong, right = (*path[:level], slip), path[: level + 1]
    values = {(*wrong, *p[level + 1 :]) if p[: level + 1] == right else p: value for p, value in DEFAULTS.items()}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "site.toml"
        error = error_of(values, file)
    assert error.startswith(f"{file}: ")
    assert ".".join(wrong) in error
    assert "Did you mean" in error or f" {right[-1]}" in error
    assert "\n" not in error


@settings(deadline=None)
@given(st.data())
def test_a_wrong_value_is_named_with_file_key_and_what_is_allowed(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(KEYS))
    value = data.draw(wrong_values(type_of(path, Settings)))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "site.toml"
        error = error_of(DEFAULTS | {path: value}, file)
    assert error.startswith(f"{file}: {'.'.join(path)} = ")
    assert "is not allowed: expected " in error
    assert not set("^\\") & set(error.partition("expected ")[2].partition(" Did you mean")[0]), "a pattern is shown"


@pytest.mark.parametrize("path", KEYS, ids=".".join)
def test_a_missing_key_is_named(path: tuple[str, ...], tmp_path: Path) -> None:
    error = error_of({other: value for other, value in DEFAULTS.items() if other != path}, tmp_path / "site.toml")
    assert error.startswith(f"{tmp_path / 'site.toml'}: {'.'.join(path)} is missing: expected ")
