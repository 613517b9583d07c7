"""When the queries of a pair begin their batches (R5)."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from jobs.observe.readiness import Readiness
from jobs.observe.routing import RouterMetrics, RouterReporter
from jobs.router.__main__ import ROLES, start_order, threads
from schemas.settings import Settings, load_settings

BASE = Path(__file__).parents[4] / "conf" / "base.toml"


def nobody() -> RouterReporter:
    return RouterReporter(RouterMetrics(CollectorRegistry()), Readiness(), lambda _query, _error: None)


def settings(**router: str) -> Settings:
    return load_settings([BASE], {f"WAYSTATION_ROUTER__{name.upper()}": value for name, value in router.items()})


def moments(of: Settings) -> dict[str, float | None]:
    """Query by name, and when in a period its batches begin, seconds; each role alone in its process."""
    nothing: Any = None
    routers = [router for role in ROLES for router in start_order(nothing, of, nothing, [role], nobody(), 3)]
    return {router.stream.name: router.anchor for router in routers}


def test_each_process_covers_its_own_pauses() -> None:
    """R5: whichever of the two goes, the two queries of the other are half a batch apart."""
    assert moments(settings(batch_s="8.0")) == {
        "router-active-3": 0.0,
        "router-active-standby-3": 4.0,
        "router-backup-3": 2.0,
        "router-backup-standby-3": 6.0,
    }


def test_without_standby_queries_the_processes_cover_each_other() -> None:
    assert moments(settings(batch_s="8.0", standby_query="false")) == {"router-active-3": 0.0, "router-backup-3": 4.0}


def test_in_one_process_the_backup_follows_the_active() -> None:
    nothing: Any = None
    active, backup = start_order(nothing, settings(), nothing, ROLES, nobody())
    assert (active.anchor, active.peer, backup.peer) == (None, None, active)
    assert active.paired is backup.paired is None


def test_a_query_and_its_standby_keep_apart() -> None:
    nothing: Any = None
    own, standby = start_order(nothing, settings(), nothing, ["backup"], nobody())
    assert own.paired is standby
    assert standby.paired is own


@pytest.mark.parametrize(
    ("roles", "standby", "queries"), [(ROLES, "true", 2), (["active"], "true", 2), (["active"], "false", 1)]
)
def test_no_query_starves_another(roles: list[str], standby: str, queries: int) -> None:
    """A thread for each partition of each query, at least: its task runs all the time."""
    of = settings(standby_query=standby)
    assert threads(of, roles) > queries * of.kafka.ingress_partitions
