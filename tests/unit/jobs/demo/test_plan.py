"""The plan of a real day keeps to its rules."""

from collections import defaultdict
from datetime import date
from datetime import time as clock_time

import pytest

from jobs.demo.errors import DemoError
from jobs.demo.flights import Day, load_day
from jobs.demo.plan import Connect, Disconnect, Plan, Publish, Step, plan_day
from jobs.demo.run import select

DAY = date(2013, 12, 2)


@pytest.fixture(scope="module")
def day() -> Day:
    return load_day(DAY)


@pytest.fixture(scope="module")
def plan(day: Day) -> Plan:
    return plan_day(day)


def of_client(plan: Plan) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = defaultdict(list)
    for step in plan.steps:
        found[step.client].append(step)
    return found


def test_steps_are_in_order_and_within_the_day(plan: Plan) -> None:
    times = [step.at for step in plan.steps]
    assert times == sorted(times)
    assert plan.begin < times[0]
    assert times[-1] < plan.end


def test_an_aircraft_reports_its_departure_leaves_and_comes_back_to_report_its_arrival(day: Day, plan: Plan) -> None:
    steps = of_client(plan)
    for tail in {flight.tail for flight in day.flights}:
        mine = steps[tail]
        flights = [flight for flight in day.flights if flight.tail == tail]
        assert len(mine) == 4 * len(flights)
        for n, flight in enumerate(flights):
            departed, left, came, arrived = mine[4 * n : 4 * n + 4]
            assert isinstance(departed.action, Publish)
            assert isinstance(arrived.action, Publish)
            assert departed.action.topic == f"flights/{flight.origin}/{tail}/departed"
            assert arrived.action.topic == f"flights/{flight.dest}/{tail}/arrived"
            assert (left.action, came.action) == (Disconnect(), Connect())
            assert departed.at == left.at == flight.departure
            assert came.at == arrived.at == flight.arrival


def test_nobody_publishes_while_away(plan: Plan) -> None:
    for steps in of_client(plan).values():
        online = True
        for step in steps:
            match step.action:
                case Connect():
                    online = True
                case Disconnect():
                    online = False
                case _:
                    assert online, step
        assert online, "everybody is back in the end"


def test_every_flight_gets_a_notice_while_in_the_air_unless_its_airline_is_away(day: Day, plan: Plan) -> None:
    notices = [step for step in plan.steps if isinstance(step.action, Publish) and step.action.topic.startswith("@")]
    assert len(notices) == len(day.flights)
    airborne = {(flight.tail, flight.name): (flight.departure, flight.arrival) for flight in day.flights}
    in_time = 0
    for step in notices:
        assert isinstance(step.action, Publish)
        begin, end = airborne[step.action.topic.removeprefix("@"), step.action.body["flight"]]
        assert begin < step.at
        in_time += step.at < end
    assert in_time > 0.8 * len(notices)


def test_a_senders_messages_are_numbered_and_of_one_qos(plan: Plan) -> None:
    sent: dict[str, list[Publish]] = defaultdict(list)
    for step in plan.steps:
        if isinstance(step.action, Publish):
            assert step.action.sender == step.client
            sent[step.client].append(step.action)
    qos = {member.client: member.publish_qos for member in plan.members}
    for client, messages in sent.items():
        assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
        assert {message.qos for message in messages} == {qos[client]}
    assert len({message.id for messages in sent.values() for message in messages}) == sum(map(len, sent.values()))


def test_there_is_something_of_everything(plan: Plan) -> None:
    publishers = {member.publish_qos for member in plan.members if member.role == "aircraft"}
    assert publishers == {0, 1, 2}
    for role in ("aircraft", "airport"):
        of_role = [member for member in plan.members if member.role == role]
        assert {member.mqtt5 for member in of_role} == {True, False}
        assert {wanted.qos for member in of_role for wanted in member.subscriptions} == {0, 1, 2}
    away = {step.client for step in plan.steps if step.action == Disconnect()}
    assert "archive" in away
    assert any(client.startswith("airline-") for client in away)
    assert any(client.startswith("airport-") for client in away)


def test_until_takes_the_first_flights_only(day: Day) -> None:
    part = select(day, clock_time(7))
    assert 0 < len(part.flights) < 200
    assert part.flights == day.flights[: len(part.flights)]
    assert plan_day(part).steps
    with pytest.raises(DemoError, match="no flight left New York"):
        select(day, clock_time(1))
