"""Rows of local clocks become flights in UTC."""

from datetime import UTC, date, datetime

import pytest

from jobs.demo.errors import DemoError
from jobs.demo.flights import Airport, flown, load_day, rows_of

AIRPORTS = {
    code: Airport(code, f"{code} Airport", city, zone)
    for code, city, zone in (
        ("JFK", "New York", "America/New_York"),
        ("LAX", "Los Angeles", "America/Los_Angeles"),
        ("BOS", "Boston", "America/New_York"),
    )
}
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)
TO_LAX = "2013,7,11,2012,2000,12,2330,2310,20,AA,21,N1AA,JFK,LAX,345,2475,20,0,2013-07-12T00:00:00Z"


def rows(*lines: str) -> list[dict[str, str]]:
    return rows_of(date(2013, 7, 11), [HEADER, *lines])


def test_clocks_are_local_to_their_airports() -> None:
    (flight,), grounded = flown(rows(TO_LAX), AIRPORTS)
    assert grounded == 0
    assert flight.scheduled_departure == datetime(2013, 7, 12, 0, 0, tzinfo=UTC)
    assert flight.departure == datetime(2013, 7, 12, 0, 12, tzinfo=UTC)
    assert flight.arrival == datetime(2013, 7, 12, 6, 30, tzinfo=UTC)
    assert flight.scheduled_arrival == datetime(2013, 7, 12, 6, 10, tzinfo=UTC)
    assert (flight.departure_delay, flight.arrival_delay, flight.name) == (12, 20, "AA21")


def test_a_delay_may_reach_into_the_next_day() -> None:
    late = "2013,7,11,28,1930,298,129,2049,280,EV,1,N2,JFK,BOS,41,187,19,30,2013-07-11T23:00:00Z"
    (flight,), _ = flown(rows(late), AIRPORTS)
    assert flight.departure == datetime(2013, 7, 12, 4, 28, tzinfo=UTC)
    assert flight.arrival == datetime(2013, 7, 12, 5, 29, tzinfo=UTC)


def test_midnight_is_written_2400() -> None:
    midnight = TO_LAX.replace("2330", "2400").replace(",20,AA", ",50,AA")
    (flight,), _ = flown(rows(midnight), AIRPORTS)
    assert flight.arrival == datetime(2013, 7, 12, 7, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        "2013,7,11,NA,2000,NA,NA,2310,NA,AA,21,N1AA,JFK,LAX,NA,2475,20,0,2013-07-12T00:00:00Z",
        "2013,7,11,,2000,,,2310,,AA,21,,JFK,LAX,,2475,20,0,2013-07-12T00:00:00Z",
        "2013,7,11,2012,2000,12,,2310,,AA,21,N1AA,JFK,LAX,,2475,20,0,2013-07-12T00:00:00Z",
    ],
    ids=["cancelled", "no aircraft", "diverted"],
)
def test_what_did_not_depart_and_arrive_is_grounded(line: str) -> None:
    assert flown(rows(line), AIRPORTS) == ([], 1)


def test_an_aircraft_is_on_one_flight_at_a_time() -> None:
    meanwhile = "2013,7,11,2100,2100,0,2200,2200,0,AA,22,N1AA,JFK,BOS,41,187,21,0,2013-07-12T01:00:00Z"
    flights, grounded = flown(rows(meanwhile, TO_LAX), AIRPORTS)
    assert [flight.number for flight in flights] == [21]
    assert grounded == 1


def test_other_days_are_not_parsed() -> None:
    assert rows_of(date(2013, 7, 1), [HEADER, TO_LAX, "2013,7,1,broken"])[0]["day"] == "1"


def test_another_year_is_one_clear_sentence() -> None:
    with pytest.raises(DemoError, match="the data set covers 2013"):
        load_day(date(2014, 7, 11))


def test_the_installed_data_have_the_day_of_the_demo() -> None:
    day = load_day(date(2013, 12, 2))
    assert (len(day.flights), day.grounded) == (1000, 4)
    assert len({flight.tail for flight in day.flights}) == 747
    assert day.airports["SJU"].city == "San Juan"
    assert day.airlines["UA"] == "United Air Lines Inc."
    hours = [(flight.arrival - flight.departure).total_seconds() / 3600 for flight in day.flights]
    assert min(hours) > 0.5
    assert max(hours) < 12
