"""The mesh's plan of a day: aircraft are at one place at a time, uplinks go and come, nobody writes to itself (M18)."""

from datetime import date

import pytest

from jobs.demo.flights import load_day
from jobs.demo.mesh_plan import Arrive, Leave, MeshPlan, Send, Uplink, plan_mesh


@pytest.fixture(scope="module")
def plan() -> MeshPlan:
    return plan_mesh(load_day(date(2013, 7, 10)), 1)


def test_the_same_seed_gives_the_same_plan(plan: MeshPlan) -> None:
    day = load_day(date(2013, 7, 10))
    assert plan_mesh(day, 1) == plan
    assert plan_mesh(day, 2).outages() != plan.outages()


def test_it_has_ten_airports_and_forty_aircraft(plan: MeshPlan) -> None:
    assert (len(set(plan.airports)), len(set(plan.aircraft))) == (10, 40)
    assert {"EWR", "JFK", "LGA"} < set(plan.airports)


def test_steps_are_in_order_and_within_the_day(plan: MeshPlan) -> None:
    times = [step.at for step in plan.steps]
    assert times == sorted(times)
    assert plan.begin <= times[0]
    assert times[-1] <= plan.end


def test_an_aircraft_is_at_one_airport_at_a_time(plan: MeshPlan) -> None:
    standing: dict[str, str] = {}
    visited: dict[str, set[str]] = {}
    for _, action in plan.steps:
        if isinstance(action, Arrive):
            assert action.aircraft not in standing
            standing[action.aircraft] = action.airport
            visited.setdefault(action.aircraft, set()).add(action.airport)
        elif isinstance(action, Leave):
            assert standing.pop(action.aircraft) == action.airport
    assert set(standing) == set(plan.aircraft)
    assert all(len(airports) > 1 for airports in visited.values())


def test_uplinks_are_lost_for_hours_and_come_back(plan: MeshPlan) -> None:
    outages = plan.outages()
    assert len({airport for airport, _, _ in outages}) >= 6
    assert all(1.5 * 3600 <= (until - since).total_seconds() <= 5 * 3600 for _, since, until in outages)
    downs = [step.action for step in plan.steps if isinstance(step.action, Uplink) and not step.action.is_up]
    assert len(downs) == len(outages)


def test_messages_are_numbered_and_go_to_somebody_else(plan: MeshPlan) -> None:
    sends = [send for _, send in plan.sends()]
    assert [send.number for send in sends] == list(range(1, len(sends) + 1))
    assert all(isinstance(send, Send) and send.sender != send.to for send in sends)
    assert {send.sender for send in sends} == {*plan.airports, *plan.aircraft}
    places = {*plan.airports, ""}
    assert all(send.to in places for send in sends)
    waiting = [
        send
        for at, send in plan.sends()
        if any(airport == send.sender and since <= at < until for airport, since, until in plan.outages())
    ]
    assert len(waiting) > 30  # of airports without uplink
