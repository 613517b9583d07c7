"""The Grafana board and the alert rules that ship: well formed, and of metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.observe.observed import observed, run_real

ROOT = Path(__file__).parents[3]
BOARD = ROOT / "conf" / "grafana" / "gateway.json"
ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\b(?:waystation|process|python)_[a-z_]+\b")
OF_EVERY_TARGET = {"up"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def expressions() -> list[str]:
    targets = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    variables = [v["query"] for v in board()["templating"]["list"] if v["type"] == "query"]
    return targets + variables + [rule["expr"] for rule in rules()]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Of all metrics that a gateway shows."""

    async def scenario() -> set[str]:
        async with observed(tmp_path_factory.mktemp("observed")) as here:
            context = here.world.context
            here.kafka.ends[context.topics.egress, 0] = 1
            return {name for name, _ in await here.samples()} | {
                "waystation_clients",
                "waystation_connections_closed_total",
            }

    return run_real(scenario())


def test_each_metric_is_there(names: set[str]) -> None:
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(used) > 30
    assert used <= names


def test_parentheses_and_quotes_are_balanced() -> None:
    for expression in expressions():
        assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}"))
        assert expression.count('"') % 2 == 0


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_each_alert_says_what_is_wrong_and_the_manual_what_to_do() -> None:
    manual = (ROOT / "docs" / "operators.md").read_text()
    alerts = rules()
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert f"| `{rule['alert']}` |" in manual, rule["alert"]


def test_each_metric_of_the_gateway_is_in_the_manual(names: set[str]) -> None:
    manual = (ROOT / "docs" / "operators.md").read_text()
    ours = {re.sub(r"_(bucket|sum|count|created)$", "", n) for n in names if n.startswith("waystation_")}
    assert sorted(name for name in ours if f"`{name}" not in manual) == []
