"""Routing as a pure function: the DataFrame transform against ten lines of plain Python (R2, R3, R7)."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from pipelines.routing import route_buckets, time_slices
from pipelines.routing.instructions import RoutingPlan, route, with_route_keys, with_routes, with_shards
from pipelines.routing.route_buckets import OVERSIZED, SUB_BUCKETS, in_buckets
from pipelines.routing.time_slices import FEW
from pipelines.spark_schemas import table_schema
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import CATCH_ALL, candidate_keys, partition_of, route_key, shard_of
from schemas.tables import ROUTES
from tests import draw

SHARDS, PARTITIONS, LEAD_S = 4, 2, 25.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
FAR = datetime(9999, 12, 31, tzinfo=UTC)
MESSAGE_SCHEMA = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, offset long, "
    "timestamp timestamp"
)

Target = tuple[int, datetime, datetime]

levels = st.sampled_from(["a", "b", "", "ü", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
destinations = st.one_of(topics, st.sampled_from(["@bob", "@", "@ü/x"]))
filters = st.lists(st.one_of(levels, st.sampled_from(["+", "#"])), min_size=1, max_size=4).map("/".join).filter(bool)
seconds = st.integers(0, 60)
moments = seconds.map(lambda s: EPOCH + timedelta(seconds=s))
intervals = st.tuples(moments, st.one_of(moments, st.just(FAR)))
routes_of = st.lists(st.tuples(filters, st.integers(0, SHARDS - 1), intervals), max_size=12)
messages_of = st.lists(st.tuples(destinations, moments), min_size=1, max_size=40)


def reference(
    topic: str, appended: datetime, targets: dict[str, list[Target]], as_of: datetime | None
) -> tuple[list[int], str]:
    """Shards to instruct, and the scope of the decision."""
    if topic.startswith("@"):
        return [shard_of(topic[1:], SHARDS)], "routed"
    if as_of is None or appended >= as_of + timedelta(seconds=LEAD_S):
        return list(range(SHARDS)), "everyone"
    found = [t for key in candidate_keys(topic) for t in targets.get(key, [])]
    return sorted({shard for shard, begin, end in found if begin <= appended < end}), "routed"


def expected_records(
    number: int, topic: str, appended: datetime, decision: tuple[list[int], str]
) -> list[tuple[Any, ...]]:
    """(topic, partition, instruction or zero-touch event) of each record a message becomes."""
    shards, scope = decision
    ms = int(appended.timestamp() * 1000)
    if not shards:
        event = {
            "v": 1,
            "kind": "untouched",
            "id": f"id-{number}",
            "partition": 0,
            "offset": number,
            "appended_ms": ms,
            "limit": 0,
            "origin": "client",
        }
        return [("progress", partition_of(f"id-{number}", PARTITIONS), json.dumps(event, sort_keys=True))]
    last = len(shards) - 1
    return [
        ("egress", shard, Instruction(0, number, n, len(shards) if n == last else None, ms, scope).encode())
        for n, shard in enumerate(shards)
    ]


def observed(row: Row) -> tuple[Any, ...]:
    if row.topic == "progress":
        return row.topic, row.partition, json.dumps(json.loads(row.value), sort_keys=True)
    assert [h.key for h in row.headers] == ["id", "src", "meta", "props", "instr", "router"]
    return row.topic, row.partition, bytes(row.headers[4].value)


def plan(router: str = "active") -> RoutingPlan:
    return RoutingPlan("egress", "progress", PARTITIONS, SHARDS, LEAD_S, router)


def message_row(number: int, topic: str, appended: datetime) -> tuple[Any, ...]:
    headers = ingress_headers(f"id-{number}", "src", Meta(1, "", None, 0, None), b"\0")
    return topic.encode(), b"payload", headers, 0, number, appended


@settings(max_examples=draw.examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=messages_of,
    routes=routes_of,
    as_of=st.one_of(st.none(), moments),
    sub_buckets=st.sampled_from([1, SUB_BUCKETS]),
    oversized=st.sampled_from([1, OVERSIZED]),
    few=st.sampled_from([1, FEW]),
)
def test_the_transform_equals_the_reference(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    messages: list[tuple[str, datetime]],
    routes: list[Any],
    as_of: datetime | None,
    sub_buckets: int,
    oversized: int,
    few: int,
) -> None:
    """R3, R7: for any routes, topics and times; and the peer's decision is the same (R5)."""
    for name, value in {
        "BUCKETS": 16,
        "SUB_BUCKETS": sub_buckets,
        "OVERSIZED": oversized,
        "KEYS_PER_SUB_BUCKET": 1,
    }.items():
        monkeypatch.setattr(
            route_buckets, name, value
        )  # few buckets, so that keys share them, and sub-buckets, or are oversized
    for name, value in {"FEW": few, "PER_SLICE": 1, "SLICE_S": 9}.items():
        monkeypatch.setattr(time_slices, name, value)
    targets: dict[str, list[Target]] = {CATCH_ALL: []}
    for topic_filter, shard, (begin, end) in routes:
        targets.setdefault(route_key(topic_filter), []).append((shard, begin, end))
    rows = [(key, 0, found, as_of if key == CATCH_ALL else None) for key, found in targets.items()]
    table = in_buckets(spark.createDataFrame(rows, table_schema(ROUTES)))
    stream = spark.createDataFrame([message_row(n, *m) for n, m in enumerate(messages)], MESSAGE_SCHEMA)
    active = [observed(row) for row in route(stream, table, plan()).collect()]
    backup = [observed(row) for row in route(stream, table, plan("backup")).collect()]
    wanted = [
        r for n, (t, at) in enumerate(messages) for r in expected_records(n, t, at, reference(t, at, targets, as_of))
    ]
    assert sorted(active, key=repr) == sorted(wanted, key=repr)
    assert active == backup


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cases=st.lists(
        st.tuples(moments, st.lists(st.tuples(st.integers(0, SHARDS - 1), moments, st.one_of(moments, st.just(FAR))))),
        min_size=50,
    )
)
def test_targets_are_decided_by_their_times(spark: SparkSession, cases: list[tuple[datetime, list[Target]]]) -> None:
    """R3: however many there are of a message, and however they overlap."""
    targets_type = table_schema(ROUTES)["targets"].dataType.simpleString()
    schema = f"destination string, timestamp timestamp, known_until timestamp, targets {targets_type}, number int"
    rows = [("a/b", at, FAR, targets, number) for number, (at, targets) in enumerate(cases)]
    decided = spark.createDataFrame(rows, schema).transform(with_shards, plan()).select("number", "shards").collect()
    wanted = [sorted({s for s, begin, end in targets if begin <= at < end}) for at, targets in cases]
    assert {row.number: row.shards for row in decided} == dict(enumerate(wanted))


def test_a_message_looks_at_few_of_the_routes_that_have_ended(spark: SparkSession) -> None:
    """However often a subscriber came and went, and however old the message is: a router may work off a backlog."""
    begins = [EPOCH + timedelta(seconds=90 * n) for n in range(2000)]
    targets = [(1, begin, begin + timedelta(seconds=60)) for begin in begins]
    rows = [("a/b", 0, targets, None), (CATCH_ALL, -1, [], FAR)]
    table = in_buckets(spark.createDataFrame(rows, table_schema(ROUTES)))
    messages = [("a/b", begin + timedelta(seconds=75 * (n % 2))) for n, begin in enumerate(begins[::99])]
    stream = spark.createDataFrame(messages, "destination string, timestamp timestamp").transform(with_route_keys)
    decided = stream.transform(with_routes, table, plan()).transform(with_shards, plan()).collect()
    assert max(len(row.targets) for row in decided) < 60
    assert [row.shards for row in sorted(decided, key=lambda row: row.timestamp)] == [
        [] if n % 2 else [1] for n in range(len(messages))
    ]


def test_routing_is_one_compiled_stage(compiling_spark: SparkSession) -> None:
    """What Spark would interpret takes the whole query's throughput with it."""
    spark = compiling_spark
    stream = spark.createDataFrame([message_row(0, "a/b", EPOCH)], MESSAGE_SCHEMA)
    table = in_buckets(spark.createDataFrame([(CATCH_ALL, -1, [], None)], table_schema(ROUTES)))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    physical = route(stream, table, plan())._jdf.queryExecution().executedPlan().toString()
    operators = re.findall(r"^[ :+-]*(?:\*\((\d+)\) )?(Generate|BroadcastHashJoin|Filter|Project)\b", physical, re.M)
    assert all(stage for stage, _ in operators), physical
    assert len({stage for stage, name in operators if name in ("Generate", "BroadcastHashJoin")}) == 1, physical


@pytest.mark.parametrize(
    "headers",
    [None, [], [("id", b"x")], [("src", b"x"), ("id", b"x"), ("meta", b"x"), ("props", b"")]],
    ids=["none", "empty", "too few", "wrong order"],
)
def test_a_record_without_envelope_is_left_to_the_quarantine(spark: SparkSession, headers: Any) -> None:
    """R2: the router passes over what has no valid envelope, and goes on."""
    good, bad = message_row(0, "a/b", EPOCH), (b"a/b", b"", headers, 0, 1, EPOCH)
    stream = spark.createDataFrame([bad, good], MESSAGE_SCHEMA)
    table = in_buckets(spark.createDataFrame([(CATCH_ALL, -1, [], None)], table_schema(ROUTES)))
    offsets = {Instruction.decode(observed(row)[2]).offset for row in route(stream, table, plan()).collect()}
    assert offsets == {0}
