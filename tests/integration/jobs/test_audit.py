"""An audit of a period: what routers do is right, and every kind of fault is found (R3, R6, R7)."""

import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.audit.__main__ import judgements
from pipelines.routing import audit, time_slices
from pipelines.routing.audit import Ledger, Period
from pipelines.routing.decisions import DIFFERS, LATER, RIGHT, Instructed, Watermarks, judged, wanted_by
from pipelines.routing.intervals import RouteChange, intervals
from pipelines.routing.route_buckets import in_buckets
from pipelines.spark_schemas import table_schema
from schemas.identity import candidate_keys, route_key
from schemas.table import Table
from schemas.tables import INSTRUCTIONS, MESSAGES, OUTCOMES, ROUTES_HISTORY
from tests.unit.pipelines.routing.test_decisions import AT, FAULTS, HOME, SHARDS, WANTED, E, R, decided, rows

BEGIN = datetime(2026, 1, 1, 23, 0, tzinfo=UTC)
PERIOD = Period(BEGIN, BEGIN + timedelta(hours=1))
ALL_OF_IT = Watermarks(PERIOD.until, PERIOD.until, PERIOD.until, PERIOD.until)
FEW = settings(
    max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)

levels = st.sampled_from(["a", "b", "", "ü"])
topics = st.lists(levels, min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.lists(st.one_of(levels, st.sampled_from(["+", "#"])), min_size=1, max_size=3).map("/".join).filter(bool)
moments = st.integers(-600, 3599).map(lambda second: BEGIN + timedelta(seconds=second))
within = st.integers(0, 3599).map(lambda second: BEGIN + timedelta(seconds=second))
# The lead was changed in between: events do not take effect in the order in which they came.
leads = st.sampled_from([0, 12, 25])
changes = st.tuples(filters, st.sampled_from(["add", "add", "drop"]), st.integers(0, SHARDS - 1), moments, leads)


class Sent(NamedTuple):
    """A message as a test has it: `instructed` are whole rows' decisions, `at` its append time."""

    destination: str
    at: datetime
    instructed: tuple[Instructed, ...]
    untouched: bool


def history(found: list[Any]) -> dict[str, list[RouteChange]]:
    """Route changes by key, offsets in order of their append times."""
    by_key: dict[str, list[RouteChange]] = defaultdict(list)
    for offset, (topic_filter, op, shard, at, lead) in enumerate(sorted(found, key=lambda change: change[3])):
        by_key[route_key(topic_filter)].append(RouteChange(offset, op, shard, at + timedelta(seconds=lead), at))
    return by_key


def wanted(destination: str, at: datetime, by_key: dict[str, list[RouteChange]]) -> list[int]:
    found = [one for key in set(candidate_keys(destination)) for one in intervals(by_key.get(key, []))]
    return wanted_by(destination, SHARDS, found, at)


def table(spark: SparkSession, declared: Table, rows: list[dict[str, Any]]) -> DataFrame:
    names = [column.name for column in declared.columns]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], table_schema(declared))


def ledger(spark: SparkSession, sent: dict[str, Sent], by_key: dict[str, list[RouteChange]]) -> Ledger:
    """The tables as the ledger would have them; message n is at offset n of partition 0."""
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for offset, (name, one) in enumerate(sent.items()):
        about, stamp = {"message_id": name, "message_appended": one.at}, {"appended": one.at, "date": one.at.date()}
        if one.destination:
            place = {"partition": 0, "offset": offset}
            of["messages"].append({"id": name, "destination": one.destination, **place, **stamp})
        of["instructions"] += [{**about, **stamp, **row} for row in rows(one.instructed, offset)]
        if one.untouched:
            of["outcomes"].append({**about, **stamp, "outcome": "untouched"})
    events = [{"route_key": key, **change._asdict()} for key, changes in by_key.items() for change in changes]
    return Ledger(
        table(spark, MESSAGES, of["messages"]),
        table(spark, ROUTES_HISTORY, events),
        table(spark, INSTRUCTIONS, of["instructions"]),
        table(spark, OUTCOMES, of["outcomes"]),
    )


def audited(tables: Ledger, watermarks: Watermarks, few: int = time_slices.FEW) -> dict[str, dict[str, Any]]:
    """What the audit says, by message id; route keys with more than `few` intervals are in slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_slices, "FEW", few)
        known = in_buckets(audit.routes_in(PERIOD, audit.intervals(tables.routes_history)))
    copies = audit.wanted(tables.messages, known, SHARDS)
    doubtful = {row.message_id for row in audit.doubtful(copies, tables, PERIOD, watermarks).collect()}
    found = list(judgements(audit.gathered(copies, tables, PERIOD), SHARDS, watermarks))
    by_id = {one["message_id"]: one for one in found}
    assert len(by_id) == len(found)
    assert {name for name, one in by_id.items() if one["verdict"] != RIGHT} <= doubtful
    assert doubtful <= {one["message_id"] for one in found if one["verdict"] != RIGHT or "everyone" in str(one)}
    return by_id


def differences(one: dict[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(found["kind"], found["scope"], tuple(found["shards"])) for found in one["differences"]]


def right(destination: str, at: datetime, by_key: dict[str, list[RouteChange]], everyone: int) -> Sent:
    """A message as routers decide: 1 of every 3 by one router that knows the routes, 1 by one that does not, 1 by both
    kinds."""
    shards, is_inbox = wanted(destination, at, by_key), destination.startswith("@")
    by_routes = everyone != 1 or is_inbox
    instructed = decided("routed", shards) if by_routes else ()
    if everyone > 0 and not is_inbox:
        instructed += decided("everyone", range(SHARDS))
    return Sent(destination, at, instructed, by_routes and not shards)


destinations = st.one_of(topics, st.sampled_from(["@bob", "@", "@ü/x"]))
instructions = st.lists(
    st.builds(
        Instructed,
        st.sampled_from(["routed", "routed", "everyone"]),
        st.integers(0, SHARDS),
        st.integers(0, 2),
        st.sampled_from([None, 1, 2, SHARDS]),
    ),
    max_size=SHARDS,
    unique_by=lambda one: (one.scope, one.shard),
).map(tuple)
any_watermarks = st.just(ALL_OF_IT) | st.builds(Watermarks, *[st.one_of(st.none(), within, st.just(PERIOD.until))] * 4)


@FEW
@given(
    events=st.lists(changes, min_size=30, max_size=120),
    sent=st.lists(st.tuples(destinations, within, st.integers(0, 2)), min_size=30, max_size=100),
    odd=st.lists(st.builds(Sent, destinations, within, instructions, st.booleans()), min_size=30, max_size=100),
    watermarks=any_watermarks,
    few=st.sampled_from([0, 2, time_slices.FEW]),
)
def test_what_routers_do_is_right(
    spark: SparkSession, events: Any, sent: Any, odd: Any, watermarks: Watermarks, few: int
) -> None:
    """R7: for any routes; and of anything else all is gathered that a judgement needs."""
    by_key = history(events)
    made = {f"right-{n}": right(destination, at, by_key, how) for n, (destination, at, how) in enumerate(sent)}
    made |= {f"odd-{n}": one for n, one in enumerate(odd)}
    found = audited(ledger(spark, made, by_key), watermarks, few)
    assert found.keys() == made.keys()
    for name, one in made.items():
        shards, row = wanted(one.destination, one.at, by_key), found[name]
        copy = {"partition": 0, "offset": 0, "appended": one.at, "destination": one.destination, "wanted": shards}
        untouched = [one.at] if one.untouched else []
        (expected,) = judged([copy], rows(one.instructed), untouched, one.at, SHARDS, watermarks)
        judgement = expected.judgement
        assert (row["verdict"], differences(row)) == (judgement.verdict, list(judgement.differences)), (name, one)
        assert (row["wanted"], row["appended"]) == (shards, one.at)
        assert not name.startswith("right") or row["verdict"] in (RIGHT, LATER)
        assert not name.startswith("right") or watermarks != ALL_OF_IT or row["verdict"] == RIGHT


ADD = [("a/#", "add", shard, BEGIN - timedelta(minutes=5), 25) for shard in WANTED]


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone is not UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_every_fault_is_found(spark: SparkSession) -> None:
    sent = {f"{n:02}": Sent(fault[0], AT, *fault[1:3]) for n, fault in enumerate(FAULTS)}
    found = audited(ledger(spark, sent, history(ADD)), ALL_OF_IT)
    assert found.keys() == sent.keys()
    for name, (_, instructed, untouched, wrong) in zip(sent, FAULTS, strict=True):
        one = found[name]
        assert (one["verdict"], differences(one)) == (DIFFERS if wrong else RIGHT, wrong), sent[name]
        assert (one["appended"], len(one["instructed"]), one["untouched"]) == (AT, len(instructed), untouched)


def test_what_went_to_everyone_is_counted(spark: SparkSession) -> None:
    """Once a message, also where the other router decided by the routes."""
    sent = {"one": Sent("a/x", AT, E, False), "both": Sent("a/x", AT, R + E, False), "none": Sent("a/x", AT, R, False)}
    found = audit.to_everyone(ledger(spark, sent, history(ADD)), PERIOD).collect()
    assert sorted(row.message_id for row in found) == ["both", "one"]


def test_what_another_broker_dated_the_day_before_is_found(spark: SparkSession) -> None:
    """Their clocks are apart, and the period begins at midnight."""
    midnight = datetime(2026, 1, 2, tzinfo=UTC)
    period = Period(midnight, midnight + timedelta(days=1))
    watermarks = Watermarks(*[period.until] * 4)
    tables = ledger(spark, {"one": Sent("@bob", midnight, decided("routed", [HOME]), False)}, {})
    tables = tables._replace(instructions=tables.instructions.withColumn("date", F.lit(BEGIN.date())))
    routes = audit.routes_in(period, audit.intervals(tables.routes_history))
    copies = audit.wanted(tables.messages, in_buckets(routes), SHARDS)
    assert audit.doubtful(copies, tables, period, watermarks).collect() == []
