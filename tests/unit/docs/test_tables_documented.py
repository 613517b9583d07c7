"""The analyst's guide has every table with every column and its type, and every view with its columns."""

import re
from pathlib import Path

import pytest

from jobs.query.ledger_reader import LedgerReader, installed_views
from schemas.table import Table
from schemas.tables import TABLES
from tests.unit.jobs.ledger_tables import append

PAGE = (Path(__file__).parents[3] / "docs" / "analysts.md").read_text()


def sections() -> dict[str, list[tuple[str, str]]]:
    """Name and type of each column, by the heading of the table they stand under."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section in re.split(r"^### ", PAGE[PAGE.index("## Tables") : PAGE.index("## Views")], flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
        found[heading.strip()] = [(cells[0].strip("`"), cells[1]) for cells in rows if len(cells) == 3]
    return found


def shown(column_type: str) -> str:
    """A type as the guide writes it."""
    if not column_type.startswith("array<struct<"):
        return column_type
    fields = column_type.removeprefix("array<struct<").removesuffix(">>").split(",")
    return f"array of struct({', '.join(f'`{name}` {kind}' for name, kind in (f.split(':') for f in fields))})"


def test_tables_are_those_declared() -> None:
    assert sections().keys() == TABLES.keys()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_columns_are_those_declared(table: Table) -> None:
    assert sections()[table.name] == [(column.name, shown(column.type)) for column in table.columns]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_keys_are_those_declared(table: Table) -> None:
    section = PAGE[PAGE.index(f"### {table.name}\n") :]
    key = re.search(r"Key: (.*?)\.( |\n)", section)
    assert key is not None
    assert tuple(re.findall("`(.+?)`", key[1])) == table.key


def test_views_are_those_installed(tmp_path: Path) -> None:
    for name in TABLES:
        append(str(tmp_path), name, [])
    reader = LedgerReader(str(tmp_path))
    assert reader.views == list(installed_views())
    rows = {
        cells[0]: re.findall("`(.+?)`", cells[1])
        for line in PAGE[PAGE.index("## Views") :].splitlines()
        if len(cells := line.strip("| ").split(" | ")) == 3
    }
    for view in reader.views:
        assert rows[f"`{view}`"] == reader.query(f"SELECT * FROM {view}").columns
