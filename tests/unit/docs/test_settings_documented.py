"""The operator's guide has every setting, in the table of its section, with its default."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.settings import load_settings

ROOT = Path(__file__).parents[3]
_ELSEWHERE = {
    "stack.broker_java_options",
    "stack.router_java_options",
    "stack.ledger_java_options",
    "gateway.authentication.jwt.algorithms",
}
"""Lists too long for a table."""


def settings(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value:
            yield from settings(value, name)
        else:
            yield name, value


def documented() -> dict[str, str]:
    """Setting by its whole name, and the cell with its default; of several in a row each has its own."""
    page, found, section = (ROOT / "docs" / "operators.md").read_text(), dict[str, str](), ""
    for line in page[page.index("| key | default | meaning |") :].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if heading := re.match(r"\*\*`\[(.+)\]`\*\*", cells[0]):
            section = heading[1]
        elif cells[0].startswith("`"):
            names, defaults = re.findall("`([^`]+)`", cells[0]), cells[1].split(", ")
            table = ".".join(filter(None, (section, names[0].rpartition(".")[0])))
            for number, name in enumerate(names):
                default = defaults[number] if len(defaults) == len(names) else cells[1]
                found[f"{table}.{name.rpartition('.')[2]}" if table else name] = default.strip("`")
    return found


DEFAULTS = dict(settings(tomllib.loads((ROOT / "conf" / "base.toml").read_text())))


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_setting_is_in_the_guide(name: str) -> None:
    """With its default as `conf/base.toml` has it."""
    shown, default = documented().get(name), DEFAULTS[name]
    assert shown is not None, f"docs/operators.md does not have {name}"
    if name in _ELSEWHERE or (isinstance(default, list) and default):
        return
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        assert float(shown) == default
    elif default in ("", [], {}):
        assert shown in ("empty", '""', "[]", "{}")
    else:
        assert shown == (str(default).lower() if isinstance(default, bool) else str(default))


def test_the_guide_has_no_setting_that_is_none() -> None:
    assert set(documented()) <= set(DEFAULTS)


def examples() -> Iterator[str]:
    """The guide's examples of a configuration; not those of other files."""
    page, tables = (
        (ROOT / "docs" / "operators.md").read_text(),
        tomllib.loads((ROOT / "conf" / "base.toml").read_text()),
    )
    for example in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        if set(tomllib.loads(example)) <= set(tables):
            yield example


@pytest.mark.parametrize("example", list(examples()))
def test_an_example_of_a_configuration_is_complete(example: str, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.toml"
    overlay.write_text(example)
    load_settings([ROOT / "conf" / "base.toml", overlay], {})
