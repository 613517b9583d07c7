"""What every command shares: the settings and the data directory. The console is in :mod:`jobs.output`."""

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
    """The global options. Settings are loaded only when a command needs them, so `--help` works without."""

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
        """Which of these set it."""
        if self.data_option:
            return "--data"
        return DATA_VARIABLE if self.environ.get(DATA_VARIABLE) else "key `data`"

    def tables(self) -> str:
        """Location of the tables: `storage.tables`, or below the data directory. Configures deltalake's access to
        them."""
        storage = self.settings().storage
        use_store(storage)
        return storage.tables.rstrip("/") or f"{self.data()}/tables"

    def ledger(self, error: type[JobError] = QueryError) -> str:
        """The same, for tables that must exist. Raises `error`, naming the directory searched, if none do."""
        tables = self.tables()
        if not has_tables(tables):
            raise error(why_no_tables(tables))
        return tables

    def job_environment(self) -> dict[str, str]:
        """The environment that configures a Spark job started by a command. Raises JavaError, JarsError."""
        java = find_java(self.environ)
        if java.warning:
            jars.say(f"using Java {java}; {java.warning}")
        jars.resolve_for(self.settings().storage.kind, self.environ, jars.say)
        return self.application_environment() | {"JAVA_HOME": str(java.home)}

    def application_environment(self) -> dict[str, str]:
        """The environment that configures an application started by a command if it needs no JVM."""
        return {
            **self.environ,
            "WAYSTATION_CONF": os.pathsep.join(str(path) for path in self.configuration),
            DATA_VARIABLE: str(self.data()),
        }


def shared(context: typer.Context) -> Shared:
    found = context.find_object(Shared)
    assert found is not None
    return found
