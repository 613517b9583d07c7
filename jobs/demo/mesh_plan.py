"""What agents do on a day of flights: pure, the same for the same flights and seed (M5, M18).

Ten airports and some forty aircraft have agents. An aircraft's agent links with that of the airport at which it stands,
and with nobody in the air. Only airports have uplinks, and some lose theirs for hours. Airports write to each other and
to the platform, aircraft too; what an airport without uplink writes leaves with the next aircraft.

The data has only flights that leave New York. An aircraft that leaves New York again must have come back: it stands at
its destination for `TURNAROUND`, and is back at the next origin as long before it leaves.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from jobs.demo.flights import Day, Flight

AIRPORTS = 10
AIRCRAFT = 40
HOMES = ("EWR", "JFK", "LGA")
TURNAROUND = timedelta(minutes=45)
WITHOUT_UPLINK = 6
"""Airports that lose their uplink."""
OUTAGES = (1, 2)
"""How often, at least and at most."""
OUTAGE = timedelta(hours=2), timedelta(hours=5)
"""For how long, at least and at most."""
MESSAGES_OF_AIRPORT = 40
MESSAGES_OF_AIRCRAFT = 3
TO_THE_PLATFORM = 0.4
"""The share of messages of airports that go to a topic; the others go to another airport."""
TOPIC = "notes"
MARGIN = timedelta(minutes=10)


class Arrive(NamedTuple):
    """An aircraft comes to an airport: their agents link."""

    aircraft: str
    airport: str


class Leave(NamedTuple):
    """It goes: the link is cut."""

    aircraft: str
    airport: str


class Uplink(NamedTuple):
    """An airport loses its uplink, or has it again."""

    airport: str
    is_up: bool


class Send(NamedTuple):
    """An agent's application writes. `to`: the recipient's agent; empty: the topic `notes/<sender>`."""

    number: int
    sender: str
    to: str


MeshAction = Arrive | Leave | Uplink | Send


class MeshStep(NamedTuple):
    at: datetime
    action: MeshAction


class MeshPlan(NamedTuple):
    """`steps` are in order of time. At `end` all uplinks are up, and every aircraft stands where it has landed."""

    airports: list[str]
    aircraft: list[str]
    steps: list[MeshStep]
    begin: datetime
    end: datetime

    def sends(self) -> list[tuple[datetime, Send]]:
        """All messages, and when they are written."""
        return [(step.at, step.action) for step in self.steps if isinstance(step.action, Send)]

    def outages(self) -> list[tuple[str, datetime, datetime]]:
        """Which airports have no uplink, and from when until when."""
        since: dict[str, datetime] = {}
        found = []
        for at, action in self.steps:
            if isinstance(action, Uplink):
                if action.is_up:
                    found.append((action.airport, since.pop(action.airport), at))
                else:
                    since[action.airport] = at
        return found


class Stay(NamedTuple):
    """An aircraft stands at an airport; `until` None: to the end."""

    aircraft: str
    airport: str
    since: datetime
    until: datetime | None


def agent_of(place: str) -> str:
    """The name of the agent at an airport or on an aircraft."""
    return f"agent-{place}"


def plan_mesh(day: Day, seed: int) -> MeshPlan:
    """The plan of a day that has flights."""
    draws = Random(f"{seed} {day.date}")
    airports = _airports(day.flights)
    served = [flight for flight in day.flights if {flight.origin, flight.dest} <= set(airports)]
    aircraft = _aircraft(served)
    flights = [flight for flight in served if flight.tail in set(aircraft)]
    begin = flights[0].departure - MARGIN
    end = max(flight.arrival for flight in flights) + MARGIN
    stays = [stay for tail in aircraft for stay in stays_of([f for f in flights if f.tail == tail], begin)]
    actions = [
        *_moves(stays),
        *_outages(airports, begin, end, draws),
        *_messages(airports, stays, begin, end, draws),
    ]
    actions.sort(key=lambda step: step.at)
    return MeshPlan(airports, aircraft, list(_numbered(actions)), begin, end)


def stays_of(flights: list[Flight], begin: datetime) -> Iterator[Stay]:
    """Where the aircraft of the flights, which are in order, stands from `begin` on."""
    since = begin
    for flight, following in zip(flights, [*flights[1:], None], strict=True):
        yield Stay(flight.tail, flight.origin, since, flight.departure)
        if following is None:
            yield Stay(flight.tail, flight.dest, flight.arrival, None)
        elif following.origin == flight.dest:
            since = flight.arrival
        else:
            away = following.departure - flight.arrival
            turnaround = min(TURNAROUND, away / 3)  # the data has turns that are shorter than two of ours
            yield Stay(flight.tail, flight.dest, flight.arrival, flight.arrival + turnaround)
            since = following.departure - turnaround


def _airports(flights: Iterable[Flight]) -> list[str]:
    """New York's, and those with the most flights from there."""
    count = Counter(flight.dest for flight in flights if flight.dest not in HOMES)
    most = sorted(count, key=lambda code: (-count[code], code))
    return [*HOMES, *most[: AIRPORTS - len(HOMES)]]


def _aircraft(flights: Iterable[Flight]) -> list[str]:
    """Those that fly most between these airports."""
    count = Counter(flight.tail for flight in flights)
    return sorted(sorted(count, key=lambda tail: (-count[tail], tail))[:AIRCRAFT])


def _moves(stays: Iterable[Stay]) -> Iterator[MeshStep]:
    for aircraft, airport, since, until in stays:
        yield MeshStep(since, Arrive(aircraft, airport))
        if until is not None:
            yield MeshStep(until, Leave(aircraft, airport))


def _outages(airports: list[str], begin: datetime, end: datetime, draws: Random) -> Iterator[MeshStep]:
    for airport in sorted(draws.sample(airports, WITHOUT_UPLINK)):
        slots = draws.randint(*OUTAGES)
        slot = (end - begin) / slots
        for number in range(slots):
            shortest, longest = OUTAGE
            lasts = min(shortest + (longest - shortest) * draws.random(), slot * 0.8)
            starts = begin + slot * number + (slot - lasts) * draws.random()
            yield MeshStep(starts, Uplink(airport, is_up=False))
            yield MeshStep(starts + lasts, Uplink(airport, is_up=True))


def _messages(
    airports: list[str], stays: list[Stay], begin: datetime, end: datetime, draws: Random
) -> Iterator[MeshStep]:
    """Their numbers are given later, in order of time."""
    for airport in airports:
        others = [other for other in airports if other != airport]
        for _ in range(MESSAGES_OF_AIRPORT):
            at = begin + (end - begin) * draws.random()
            to = "" if draws.random() < TO_THE_PLATFORM else draws.choice(others)
            yield MeshStep(at, Send(0, airport, to))
    for aircraft in sorted({stay.aircraft for stay in stays}):
        for _ in range(MESSAGES_OF_AIRCRAFT):
            at = begin + (end - begin) * draws.random()  # on the ground or in the air
            yield MeshStep(at, Send(0, aircraft, draws.choice(["", *airports])))


def _numbered(steps: Iterable[MeshStep]) -> Iterator[MeshStep]:
    number = 0
    for step in steps:
        if isinstance(step.action, Send):
            number += 1
            step = step._replace(action=step.action._replace(number=number))
        yield step
