"""The clients of a day and what each does when: pure, the same for the same flights.

An aircraft is connected on the ground: it publishes its departure and disconnects, reconnects after landing and
publishes its arrival. While it is in the air its airline writes to its inbox. Airports, airlines, some aircraft and a
few centres subscribe; some of them are offline for a part of the day.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobs.demo.flights import Airport, Day, Flight
from schemas.identity import hash_of, inbox_of

NOTICE_AT = 0.5
"""An airline writes to its aircraft after this part of the flight."""
ABSENCE = 0.12
"""How long a client is offline, as a part of the day."""
MARGIN = timedelta(minutes=10)


class Subscription(NamedTuple):
    filter: str
    qos: int


class Member(NamedTuple):
    """A client: its session outlives its connections. `publish_qos` is the QoS of all its messages."""

    client: str
    role: str
    mqtt5: bool
    publish_qos: int
    subscriptions: tuple[Subscription, ...]


class Connect(NamedTuple):
    """Connect, unless already connected."""


class Disconnect(NamedTuple):
    """Disconnect once all publishes are acknowledged."""


class Subscribe(NamedTuple):
    """Subscribe to all of the member's filters."""


class Publish(NamedTuple):
    """`id` is unique in the run; `seq` counts the sender's messages from 1; both are also in `body`."""

    id: str
    sender: str
    seq: int
    topic: str
    qos: int
    body: dict[str, Any]


Action = Connect | Disconnect | Subscribe | Publish


class Step(NamedTuple):
    """What a client does at a time of the simulated day."""

    at: datetime
    client: str
    action: Action


class Plan(NamedTuple):
    """All members are connected and subscribed before `begin`; `steps` are in order of time."""

    members: list[Member]
    steps: list[Step]
    begin: datetime
    end: datetime


def plan_day(day: Day) -> Plan:
    """The plan of a day that has flights."""
    begin = day.flights[0].departure - MARGIN
    end = max(flight.arrival for flight in day.flights) + MARGIN
    first = {flight.tail: flight for flight in reversed(day.flights)}
    tails: dict[str, set[str]] = {}
    for flight in day.flights:
        tails.setdefault(flight.carrier, set()).add(flight.tail)
    members = [
        *(_aircraft(flight) for flight in first.values()),
        *(_airport(code) for code in day.airports),
        *(_airline(carrier, sorted(flown)) for carrier, flown in sorted(tails.items())),
        *CENTRES,
    ]
    away = {member.client: absence for member in members if (absence := _absence(member, begin, end))}
    qos = {member.client: member.publish_qos for member in members}
    steps = [*_absences(away), *_numbered(_flown(day, away), qos)]
    return Plan(members, sorted(steps, key=lambda step: step.at), begin, end)


CENTRES = (
    Member("operations", "centre", True, 1, (Subscription("flights/#", 1),)),
    Member("archive", "centre", False, 1, (Subscription("flights/#", 2),)),
    Member("departures-board", "centre", True, 1, (Subscription("flights/+/+/departed", 0),)),
    Member("arrivals-board", "centre", False, 1, (Subscription("flights/+/+/arrived", 0),)),
)


def airport_client(code: str) -> str:
    return f"airport-{code}"


def airline_client(carrier: str) -> str:
    return f"airline-{carrier}"


def _aircraft(first: Flight) -> Member:
    """Of ten, one publishes at QoS 0, six at 1, three at 2; two subscribe to events at their destination, one to its
    own."""
    lot = hash_of(first.tail)
    subscriptions: tuple[Subscription, ...] = ()
    if lot % 5 == 1:
        subscriptions = (Subscription(f"flights/{first.dest}/#", lot // 5 % 3),)
    elif lot % 10 == 3:
        subscriptions = (Subscription(f"flights/+/{first.tail}/#", 1),)
    qos = (0, 1, 1, 1, 1, 1, 1, 2, 2, 2)[lot // 7 % 10]
    return Member(first.tail, "aircraft", lot // 11 % 4 != 0, qos, subscriptions)


def _airport(code: str) -> Member:
    lot = hash_of(code)
    return Member(airport_client(code), "airport", lot % 2 == 0, 1, (Subscription(f"flights/{code}/#", lot % 3),))


def _airline(carrier: str, tails: list[str]) -> Member:
    lot = hash_of(carrier)
    filters = tuple(Subscription(f"flights/+/{tail}/#", 1 + lot % 2) for tail in tails)
    return Member(airline_client(carrier), "airline", lot % 3 != 0, 1 + lot // 2 % 2, filters)


def _absence(member: Member, begin: datetime, end: datetime) -> tuple[datetime, datetime] | None:
    """When a client is offline: the archive, and a third of the airports and airlines subscribed at QoS 1 or 2 only."""
    lot = hash_of(member.client)
    subscribed_qos = min((subscription.qos for subscription in member.subscriptions), default=0)
    chosen = member.client == "archive" or (member.role in ("airport", "airline") and lot % 3 == 0)
    if not chosen or subscribed_qos == 0:
        return None
    start = begin + (end - begin) * (0.3 + lot // 3 % 40 / 100)
    return start, start + (end - begin) * ABSENCE


def _absences(away: dict[str, tuple[datetime, datetime]]) -> Iterator[Step]:
    for client, (start, until) in away.items():
        yield Step(start, client, Disconnect())
        yield Step(until, client, Connect())


def _flown(day: Day, away: dict[str, tuple[datetime, datetime]]) -> Iterator[Step]:
    """What aircraft and airlines do, flight by flight; publishes are not numbered yet."""
    for flight in day.flights:
        yield Step(flight.departure, flight.tail, _report(day, flight, "departed"))
        yield Step(flight.departure, flight.tail, Disconnect())
        at, airline = flight.departure + (flight.arrival - flight.departure) * NOTICE_AT, airline_client(flight.carrier)
        if airline in away and away[airline][0] <= at < away[airline][1]:
            at = away[airline][1]
        yield Step(at, airline, _notice(day, flight))
        yield Step(flight.arrival, flight.tail, Connect())
        yield Step(flight.arrival, flight.tail, _report(day, flight, "arrived"))


def _numbered(steps: Iterator[Step], qos: dict[str, int]) -> Iterator[Step]:
    """Gives publishes the sequence, id and QoS of their sender, in order of time."""
    counts: Counter[str] = Counter()
    for step in sorted(steps, key=lambda step: step.at):
        action = step.action
        if isinstance(action, Publish):
            counts[step.client] += 1
            seq = counts[step.client]
            identifier = f"{step.client}-{seq}"
            body = {"id": identifier, "seq": seq, **action.body}
            action = action._replace(id=identifier, seq=seq, qos=qos[step.client], body=body)
        yield step._replace(action=action)


def _report(day: Day, flight: Flight, what: str) -> Publish:
    departed = what == "departed"
    airport = flight.origin if departed else flight.dest
    body = {
        "flight": flight.name,
        "carrier": day.airlines.get(flight.carrier, flight.carrier),
        "tail": flight.tail,
        "origin": _place(day.airports[flight.origin]),
        "dest": _place(day.airports[flight.dest]),
        "distance_miles": flight.distance,
        "scheduled": _text(flight.scheduled_departure if departed else flight.scheduled_arrival),
        "actual": _text(flight.departure if departed else flight.arrival),
        "delay_min": flight.departure_delay if departed else flight.arrival_delay,
    }
    return Publish("", flight.tail, 0, f"flights/{airport}/{flight.tail}/{what}", 0, body)


def _notice(day: Day, flight: Flight) -> Publish:
    """A message from the airline to the aircraft in the air."""
    body = {
        "flight": flight.name,
        "notice": f"{day.airports[flight.dest].city} expects you {_lateness(flight.arrival_delay)}",
        "expected": _text(flight.arrival),
        "delay_min": flight.arrival_delay,
    }
    return Publish("", airline_client(flight.carrier), 0, inbox_of(flight.tail), 0, body)


def _lateness(minutes: int) -> str:
    if minutes == 0:
        return "on time"
    return f"{abs(minutes)} min {'late' if minutes > 0 else 'early'}"


def _place(airport: Airport) -> dict[str, str]:
    return {"code": airport.code, "name": airport.name, "city": airport.city}


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="minutes").replace("+00:00", "Z")
