"""The table of the mesh's demo, the pace of its day, and who shares a process (M5, M18)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from edge.agent.way import Step
from jobs.demo import mesh_figures, mesh_report
from jobs.demo.mesh_account import Accepted, MeshAccount
from jobs.demo.mesh_day import Pace, is_reachable
from jobs.demo.mesh_hosts import groups
from jobs.demo.mesh_plan import Leave, MeshPlan, MeshStep, Uplink, agent_of
from jobs.output import Terminal

NOON = datetime(2013, 7, 10, 12, tzinfo=UTC)


@pytest.fixture
def plan() -> MeshPlan:
    """JFK has no uplink for three hours."""
    steps = [
        MeshStep(NOON, Uplink("JFK", is_up=False)),
        MeshStep(NOON, Leave("N01", "JFK")),
        MeshStep(NOON + timedelta(hours=3), Uplink("JFK", is_up=True)),
    ]
    aircraft = [f"N{number:02}" for number in range(40)]
    return MeshPlan(["JFK", "LGA"], aircraft, steps, NOON, NOON + timedelta(hours=6))


def figures(plan: MeshPlan, *, copies: int = 1) -> tuple[dict[str, Any], list[mesh_figures.Told]]:
    """Of two messages from JFK: one by its own uplink, and one to LGA by an aircraft, which arrives `copies` times."""
    account, plane = MeshAccount(), agent_of(plan.aircraft[0])
    account.accept(Accepted(1, "JFK", "", "m1", NOON))
    account.accept(Accepted(2, "JFK", "LGA", "m2", NOON))
    account.arrive(1, "", NOON + timedelta(minutes=1))
    for _ in range(copies):
        account.arrive(2, "LGA", NOON + timedelta(hours=3))
    first, second = "1" * 32, "2" * 32
    logs = {
        "agent-JFK": [
            Step("m1", 1, "file", "accepted", f"as bundle {first}"),
            Step(first, 2, "mesh", "acknowledged", "says platform as gateway"),
            Step("m2", 1, "file", "accepted", f"as bundle {second}"),
            Step(second, 3, "mesh", "given", f"to {plane}"),
        ],
        plane: [
            Step(second, 3, "mesh", "carried", "from agent-JFK"),
            Step(second, 9, "mesh", "given", "to agent-LGA"),
        ],
        "agent-LGA": [Step(second, 9, "mesh", "received", "from agent-JFK, after 2 links")],
    }
    told = mesh_figures.ways(account, logs)
    statuses = {"JFK": {"uplink": {"claims_granted": 3, "claims_refused": 1}}, "LGA": {"uplink": {"claims_granted": 1}}}
    return mesh_figures.figures(plan, account, told, {**statuses, plan.aircraft[0]: {}}), told


def test_figures_tell_ways_delays_and_claims(plan: MeshPlan) -> None:
    found, told = figures(plan)
    assert (found["outages"], found["airports_without_uplink"], found["outage_hours"]) == (1, 1, 3.0)
    assert found["without_uplink"] == 2
    assert (found["flights"], found["of_aircraft"], found["to_agents"]) == (1, 0, 1)
    assert (found["accepted"], found["by_server_path"], found["by_mesh"], found["way_unknown"]) == (2, 1, 1, 0)
    assert (found["by_mesh_to_the_agent"], found["by_mesh_and_platform"]) == (1, 0)
    assert found["delay_min"]["mesh"] == {"median": 180.0, "p99": 180.0}
    assert found["delay_min"]["server_path"]["median"] == 1.0
    assert (found["hops"], found["claims_granted"], found["claims_refused"]) == ({"2": 1}, 4, 1)
    assert not any(found[name] for name in mesh_figures.MUST_BE_ZERO)
    shown = mesh_figures.journey_of(plan, told)
    assert shown is not None
    assert shown.way.agents == ("agent-JFK", agent_of(plan.aircraft[0]), "agent-LGA")


def test_a_second_copy_decides_the_exit_status(plan: MeshPlan) -> None:
    found, _ = figures(plan, copies=2)
    assert found["doubled"] == 1


def test_the_table_and_the_trace_show_them(plan: MeshPlan, capsys: pytest.CaptureFixture[str]) -> None:
    found, told = figures(plan, copies=2)
    phases = {"date": "2013-07-10", "speed": 1200.0, "up_s": 30.0, "day_s": 80.0, "settle_s": 5.0, "ledger_s": 9.0}
    mesh_report.show_result(Terminal(), found | phases)
    mesh_report.show_trace(Terminal(), told[1], lambda at_s: NOON + timedelta(hours=at_s))
    shown = capsys.readouterr().out
    assert "these must be 0: doubled: 1" in shown
    assert "1 s: 20 min" in shown
    assert "3.0 h" in shown
    assert f"agent-JFK → {agent_of(plan.aircraft[0])} → agent-LGA" in shown
    assert "11:00" in shown  # the time in New York


def test_the_day_goes_by_in_seconds() -> None:
    at = 100.0
    pace = Pace(NOON, 3600.0, lambda: at)
    assert pace.now == NOON
    pace.start()
    at = 102.5
    assert pace.now == NOON + timedelta(hours=2.5)
    assert pace.until_s(NOON + timedelta(hours=3)) == pytest.approx(0.5)


def test_each_airport_has_a_process_and_aircraft_share_some(plan: MeshPlan) -> None:
    found = groups(plan)
    assert found[: len(plan.airports)] == [[airport] for airport in plan.airports]
    shared = found[len(plan.airports) :]
    assert sorted(place for places in shared for place in places) == plan.aircraft
    assert len(shared) == 4


def test_an_airport_is_ready_once_both_ways_to_the_platform_are_open() -> None:
    assert is_reachable({"connected": True, "uplink": {"is_up": True}})
    assert not is_reachable({"connected": True, "uplink": {"is_up": False}})
    assert not is_reachable({"connected": False, "uplink": {"is_up": True}})
    assert not is_reachable({"connected": True})
