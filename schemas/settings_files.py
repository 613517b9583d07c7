"""Files and environment merged into one table that remembers the source of each value."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import SettingsError, why_unreadable
from schemas.sections import Section
from schemas.validation import (
    Key,
    Problem,
    SectionType,
    convert,
    from_text,
    not_a_setting,
    paths,
    settings_error,
    type_of,
)

ENVIRONMENT_PREFIX = "WAYSTATION_"

_KEY = re.compile(r"[a-z_]+(?:\.[a-z_]+)+|\bdata\b")


def load_file(
    path: Path, section: type[SectionType], broken_rules: Callable[[SectionType], Iterable[str]]
) -> SectionType:
    """The settings of a program that has one file; `broken_rules` are those between keys. Raises SettingsError, with
    every unknown key and every value that is not allowed."""
    sources = Sources(section)
    sources.add_file(path)
    found = convert(sources.table, section)
    if isinstance(found, list):
        raise settings_error(sources.sentences(found))
    broken = [f"{path}: {sentence}" for sentence in broken_rules(found)]
    if broken:
        raise settings_error(broken)
    return found


def read_secret(key: str, file: str) -> str:
    """The content of the file that the setting `key` names, without the final newline. Raises SettingsError."""
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key} = {file!r} cannot be read: {why_unreadable(error)}") from error


def secret_if_set(key: str, file: str) -> str | None:
    """As :func:`read_secret`; None if no file is set."""
    return read_secret(key, file) if file else None


class Sources:
    """The merged table of a configuration's files and the environment, for settings of type `section`.

    `problems`: environment variables that name no setting.
    """

    def __init__(self, section: type[Section]) -> None:
        self.table: dict[str, Any] = {}
        self.problems: list[str] = []
        self._section = section
        self._origins: dict[tuple[str, ...], str] = {}

    def add_file(self, path: Path) -> None:
        """Merge a file over the present values. Raises SettingsError if it cannot be read or is not TOML."""
        self._origins.setdefault((), str(path))
        self._merge(self.table, read_toml(path, "the configuration file"), (), str(path))

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Merge `WAYSTATION_<TABLE>__<KEY>` variables over the present values."""
        nested = [path for path in paths(self._section) if len(path) > 1]
        misspelt = {ENVIRONMENT_PREFIX + "_".join(path).upper(): path for path in nested}
        for name, text in sorted(environment.items()):
            if name.startswith(ENVIRONMENT_PREFIX) and "__" in name:
                self._override(name, text)
            elif name in misspelt:
                meant = ENVIRONMENT_PREFIX + "__".join(misspelt[name]).upper()
                self.problems.append(f"environment variable {name} is not a setting. Did you mean {meant}?")

    def sentences(self, problems: Iterable[Problem]) -> list[str]:
        """All problems, each with its file or variable."""
        return [*self.problems, *(f"{self._origin(problem.key)}: {problem.text}" for problem in problems)]

    def with_origins(self, sentence: str) -> str:
        """A sentence about settings, with the source of each: `… (gateway.host: c1.toml)`."""
        origins = {key: self._origins.get(tuple(key.split("."))) for key in _KEY.findall(sentence)}
        named = [f"{key}: {origin}" for key, origin in origins.items() if origin is not None]
        return f"{sentence} ({'; '.join(named)})" if named else sentence

    def _origin(self, key: Key) -> str:
        names = tuple(part for part in key if isinstance(part, str))
        while names not in self._origins:
            names = names[:-1]
        return self._origins[names]

    def _merge(self, into: dict[str, Any], new: dict[str, Any], path: tuple[str, ...], origin: str) -> None:
        for key, value in new.items():
            self._origins[(*path, key)] = origin
            if isinstance(value, dict):
                if not isinstance(into.get(key), dict):
                    into[key] = {}
                self._merge(into[key], value, (*path, key), origin)
            else:
                into[key] = value

    def _override(self, name: str, text: str) -> None:
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        if sentence := not_a_setting(path, self._section):
            self.problems.append(f"environment variable {name}: {sentence}")
            return
        table = self.table
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                return  # a file has another value there, which is wrong
        table[path[-1]] = from_text(text, type_of(path, self._section))
        self._origins[path] = f"environment variable {name}"


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a file; `what` describes it in errors. Raises SettingsError with the file and the line that is
    wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {what} {path}: {why_unreadable(error)}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
