"""docs/client.md: what it names can be imported from `waystation`."""

import re
from pathlib import Path

import waystation
from schemas.errors import WaystationError

TEXT = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")


def test_an_application_can_catch_every_error_of_the_page() -> None:
    section = TEXT.partition("## Errors")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert "LocalProtocolError" in names
    for name in names:
        assert name in waystation.__all__
        assert issubclass(getattr(waystation, name), WaystationError)
