"""The Grafana boards and the alert rules that ship: well formed, and of metrics that there are."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gateway.dispatch.observer import DispatcherMetrics
from gateway.observe.standby_metrics import Followed, StandbyFigures
from jobs.observe.feeds import FeedMetrics
from jobs.observe.routing import RouterMetrics, RoutesMetrics
from pipelines.feeds.comparison import Pairs, SlotState
from tests.unit.gateway.observe.observed import observed_in_cluster, run_real
from tests.unit.jobs.observe.jvm import FakeJvm
from tests.unit.jobs.observe.recorded import measured, observer, recorded, samples

ROOT = Path(__file__).parents[3]
BOARDS = {name: ROOT / "conf" / "grafana" / f"{name}.json" for name in ("gateway", "spark")}
ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\b(?:waystation|process|python)_[a-z_]+\b")


def rules(who: str) -> list[dict[str, Any]]:
    """The alerts about `who`, a gateway or a Spark application."""
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(ALERTS.read_text())["groups"]}
    assert set(groups) == {f"waystation-{name}" for name in BOARDS}
    found: list[dict[str, Any]] = groups[f"waystation-{who}"]
    return found


def board(who: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARDS[who].read_text())
    return found


def expressions(who: str) -> list[str]:
    targets = [target["expr"] for panel in board(who)["panels"] for target in panel.get("targets", [])]
    variables = [v["query"] for v in board(who)["templating"]["list"] if v["type"] == "query"]
    return targets + variables + [rule["expr"] for rule in rules(who)]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Of all metrics that a gateway shows, and of all that Spark applications do."""
    return {"gateway": names_of_gateway(tmp_path_factory.mktemp("observed")), "spark": names_of_spark()}


def names_of_gateway(directory: Path) -> set[str]:

    async def scenario() -> set[str]:
        async with observed_in_cluster(directory) as (here, leases):
            leases.claim(0, 1, "gateway-2")
            leases.claim(0, 2, "gateway-1")
            leases.serves(0, 2, "gateway-1")
            figures = StandbyFigures({"gateway-2": "up"}, 0, {1: Followed(0, True, 0.0)})
            leases.sources.standby_figures = lambda: figures
            context = here.harness.node
            here.kafka.ends[context.topics.egress, 0] = 1
            dispatcher = DispatcherMetrics(Counter(), lambda: 0, lambda: 0)
            samples = (sample for family in dispatcher.collect() for sample in family.samples)
            return (
                {name for name, _ in await here.samples()}
                | {sample.name for sample in samples}
                | {
                    "waystation_clients",
                    "waystation_connections_closed_total",
                }
            )

    return run_real(scenario())


def names_of_spark() -> set[str]:
    """After each of the recorded batches, and one of a query that remembers something."""
    with observer() as this:
        RouterMetrics(this.registry).expect("active")
        RoutesMetrics(this.registry, 25.0).folded(1)
        feeds = FeedMetrics(this.registry)
        feeds.brought("radar", "active", 1, 1)
        feeds.paired(Pairs("radar", np.array([0.1, -0.1]), 1))
        feeds.states([SlotState("radar", "active", 1, 1.0)], {"radar": 1})
        jvm = FakeJvm()
        this.watch(jvm.session, {"outcomes": 10.0})
        this.look(0.0)
        told = [measured(progress) for progress in recorded()]
        state = dict.fromkeys(("rows", "disk_bytes", "updated_rows", "removed_rows", "copies"), 3)
        counted = told[0] | {"state": state}
        for watcher in this.watchers:
            for one in (*told, counted):
                watcher.progressed("outcomes", one)
        return {name for name, _ in samples(this)}


@pytest.mark.parametrize("who", BOARDS)
def test_each_metric_is_there(who: str, names: dict[str, set[str]]) -> None:
    used = {name for expression in expressions(who) for name in METRIC.findall(expression)}
    assert len(used) > 25
    assert used <= names[who]


@pytest.mark.parametrize("who", BOARDS)
def test_parentheses_and_quotes_are_balanced(who: str) -> None:
    for expression in expressions(who):
        assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}"))
        assert expression.count('"') % 2 == 0


@pytest.mark.parametrize("who", BOARDS)
def test_panels_do_not_overlap_and_have_numbers_of_their_own(who: str) -> None:
    panels = board(who)["panels"]
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


def test_boards_can_be_told_apart() -> None:
    assert len({board(who)["uid"] for who in BOARDS}) == len({board(who)["title"] for who in BOARDS}) == len(BOARDS)


@pytest.mark.parametrize("who", BOARDS)
def test_each_alert_says_what_is_wrong_and_the_manual_what_to_do(who: str) -> None:
    manual = (ROOT / "docs" / "operators.md").read_text()
    alerts = rules(who)
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert re.search(rf"^\| (`\w+`, )*`{rule['alert']}`", manual, re.MULTILINE), rule["alert"]


def test_each_alert_has_a_name_of_its_own() -> None:
    alerts = [rule["alert"] for who in BOARDS for rule in rules(who)]
    assert len(set(alerts)) == len(alerts)


def test_each_alert_about_spark_says_what_to_do() -> None:
    assert all(rule["annotations"]["action"] for rule in rules("spark"))


def test_no_metric_of_ours_means_two_things(names: dict[str, set[str]]) -> None:
    assert [name for name in sorted(names["gateway"] & names["spark"]) if name.startswith("waystation_")] == []


@pytest.mark.parametrize("who", BOARDS)
def test_each_metric_is_in_the_manual(who: str, names: dict[str, set[str]]) -> None:
    manual = (ROOT / "docs" / "operators.md").read_text()
    ours = {re.sub(r"_(bucket|sum|count|created)$", "", n) for n in names[who] if n.startswith("waystation_")}
    counted = {name for name in ours if f"`{name}_total`" in manual}  # a counter's `_created` has the name without it
    assert sorted(name for name in ours - counted if f"`{name}`" not in manual) == []
