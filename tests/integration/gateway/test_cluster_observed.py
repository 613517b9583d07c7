"""Two gateway processes that share the shards, as console and metrics show them; one is killed (G4, G6)."""

from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.processes import Gateway
from tests.conftest import LocalBroker
from tests.waiting import wait_for

PATIENCE_S = 60.0


class Member(Gateway):
    """One of several gateways."""

    def __init__(self, name: str, directory: Path, broker: LocalBroker, prefix: str) -> None:
        directory.mkdir()
        super().__init__(directory, broker.bootstrap, prefix)
        self.environ |= {
            "WAYSTATION_GATEWAY__NAME": name,
            "WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true",
            "WAYSTATION_GATEWAY__CLUSTER__MEMBERS_HOST": "127.0.0.1",
        }

    def ask(self, path: str) -> str:
        with urlopen(f"http://{self.addresses['metrics']}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def figure(self, metric: str, **labels: str) -> float:
        """The sum of all samples with these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.ask("/metrics"))
            for sample in family.samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        )


def holds(condition: Callable[[], bool], what: str) -> None:
    wait_for(condition, what, PATIENCE_S)


@pytest.mark.timeout(300)
def test_takeovers_are_shown_and_counted(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """Planned, when a gateway stops in order; lost, when it is killed. What was on `leases` before a gateway's start is
    no takeover that it has seen."""
    broker.topics(unique_prefix)
    first, second = (Member(name, tmp_path / name, broker, unique_prefix) for name in ("gw-1", "gw-2"))
    try:
        first.start()
        shards = first.figure("waystation_shards")
        holds(lambda: first.figure("waystation_shards", state="served") == shards > 0, "all shards are served")
        second.start()
        assert "first owner" in first.ask("/console/shards")
        assert "first owner" not in second.ask("/console/shards")
        assert f"http://{first.addresses['metrics']}/console/shards" in second.ask("/console/shards")
        first.stop()
        holds(lambda: second.figure("waystation_shard_owned") == shards, "the second has all shards")
        holds(lambda: second.figure("waystation_shards", state="served") == shards, "it serves them")
        assert second.figure("waystation_takeovers_total", reason="planned") == shards
        assert second.figure("waystation_takeovers_total", reason="lost") == 0
        first.start()
        second.kill()
        holds(lambda: first.figure("waystation_shard_owned") == shards, "the first has all shards again")
        holds(lambda: first.figure("waystation_shards", state="served") == shards, "it serves them")
        assert first.figure("waystation_takeovers_total", reason="lost") > 0
        assert 0 < first.figure("waystation_last_takeover_seconds") < PATIENCE_S
        assert "owner lost" in first.ask("/console/shards")
    finally:
        first.kill()
        second.kill()
