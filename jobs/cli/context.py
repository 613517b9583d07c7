"""What every command shares: the settings and the data directory; and the console, which is :mod:`jobs.output`'s."""

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import typer

from jobs.errors import JobError, QueryError
from jobs.output import output as output
from jobs.runtime.storage import use_store
from jobs.stack import jars
from jobs.stack.java import find_java
from jobs.stack.missing import has_tables, why_no_tables
from jobs.stack.state import DATA_VARIABLE
from schemas.settings import Settings, load_settings, with_secrets

OVERLAYS = ("base.toml", "local.toml")


class Shared(NamedTuple):
    """The global options; settings are loaded when a command asks for them, so that `--help` needs none."""

    overlays: list[Path]
    data_option: Path | None
    environ: Mapping[str, str]

    @property
    def configuration(self) -> list[Path]:
        """The configuration files, later ones over earlier ones."""
        installed = resources.files("conf")
        return [Path(str(installed.joinpath(name))) for name in OVERLAYS] + [path.absolute() for path in self.overlays]

    def settings(self) -> Settings:
        return with_secrets(load_settings(self.configuration, self.environ))

    def data(self) -> Path:
        """The data directory, absolute: `--data`, or `WAYSTATION_DATA`, or the key `data`."""
        chosen = self.data_option or self.environ.get(DATA_VARIABLE) or self.settings().data
        return Path(chosen).absolute()

    def data_from(self) -> str:
        """Which of these chose it."""
        if self.data_option:
            return "--data"
        return DATA_VARIABLE if self.environ.get(DATA_VARIABLE) else "key `data`"

    def tables(self) -> str:
        """Where the tables stand: `storage.tables`, or under the data directory. deltalake learns how to reach them."""
        storage = self.settings().storage
        use_store(storage)
        return storage.tables.rstrip("/") or f"{self.data()}/tables"

    def ledger(self, error: type[JobError] = QueryError) -> str:
        """The same of tables that are there. Raises `error`, with the directory that was looked in, if none is."""
        tables = self.tables()
        if not has_tables(tables):
            raise error(why_no_tables(tables))
        return tables

    def job_environment(self) -> dict[str, str]:
        """What a Spark job that a command starts learns everything from. Raises JavaError, JarsError."""
        java = find_java(self.environ)
        if java.warning:
            jars.say(f"using Java {java}; {java.warning}")
        jars.resolve_for(self.settings().storage.kind, self.environ, jars.say)
        return self.application_environment() | {"JAVA_HOME": str(java.home)}

    def application_environment(self) -> dict[str, str]:
        """What an application that a command starts, and that needs no JVM, learns everything from."""
        return {
            **self.environ,
            "WAYSTATION_CONF": os.pathsep.join(str(path) for path in self.configuration),
            DATA_VARIABLE: str(self.data()),
        }


def shared(context: typer.Context) -> Shared:
    found = context.find_object(Shared)
    assert found is not None
    return found
