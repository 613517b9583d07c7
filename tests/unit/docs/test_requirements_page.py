"""docs/requirements.md names files that there are, tests that name the requirement, and every id that is used."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ID = re.compile(r"\b(?:[QRGM][1-9][0-9]?|S2)\b")  # S3 is also the name of an object store
SOURCES = ("edge", "gateway", "jobs", "mqtt", "pipelines", "schemas", "tests", "waystation")


def rows() -> dict[str, list[str]]:
    """By the ids of a row its cells: ids, requirement, code, tests."""
    lines = (ROOT / "docs" / "requirements.md").read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and ID.match(line[2:])]
    return {row[0]: row for row in cells}


def paths(cell: str) -> list[str]:
    return [name for name in re.findall(r"`([^`]+)`", cell) if "/" in name]


ROWS = rows()


def ids(row: list[str]) -> set[str]:
    return set(ID.findall(row[0]))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_names_code_and_tests_that_there_are(row: list[str]) -> None:
    assert len(row) == 4
    assert paths(row[2])
    assert paths(row[3])
    for path in paths(row[2]):
        assert (ROOT / path).exists(), path
    for path in paths(row[3]):
        assert (ROOT / "tests" / path).is_file(), path


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_tests_of_a_row_name_its_ids(row: list[str]) -> None:
    named = {path: set(ID.findall((ROOT / "tests" / path).read_text())) for path in paths(row[3])}
    for path, found in named.items():
        assert found & ids(row), path
    assert ids(row) <= set().union(*named.values())


def test_every_id_that_is_used_has_a_row() -> None:
    used = {
        found: str(file.relative_to(ROOT))
        for name in SOURCES
        for file in (ROOT / name).rglob("*.py")
        for found in ID.findall(file.read_text())
    }
    missing = used.keys() - set().union(*map(ids, ROWS.values()))
    assert not missing, {found: used[found] for found in missing}
