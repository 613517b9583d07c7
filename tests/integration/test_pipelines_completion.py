"""Completion: any order, copies, never early (R4), at once for a message nobody wants (R7)."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines.completion import completions
from schemas.events import CompletionEvent, Delivery, ProgressEvent, decode, encode
from tests.integration.streamed import streamed

SHARDS = 130
START_MS = 1_700_000_000_000
BATCHES = 5


def progress(message: int, number: int, touches: int, scope: str = "routed") -> ProgressEvent:
    """The relinquish of instruction `number` of `touches`; an untouched message's record if there are none."""
    last = number == touches - 1
    return ProgressEvent(
        kind="relinquish" if touches else "untouched",
        id=f"m{message}",
        partition=0,
        offset=message,
        appended_ms=START_MS + message,
        scope=scope,
        shard=number if touches else None,
        number=number if touches else None,
        limit=touches if last or not touches else None,
    )


def outcome(message: int) -> ProgressEvent:
    """A report of a delivery that ends nothing."""
    delivery = Delivery(client="c", outcome="delivered", qos=1, at_us=1)
    event = progress(message, 0, 2)
    return ProgressEvent(
        kind="outcome", id=event.id, partition=0, offset=0, appended_ms=event.appended_ms, shard=0, number=0, limit=2,
        deliveries=[delivery],
    )  # fmt: skip


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(touches=st.lists(st.integers(0, 4) | st.just(SHARDS), min_size=20, max_size=60), seed=st.integers())
def test_complete_exactly_when_all_are_relinquished(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, touches: list[int], seed: int
) -> None:
    """R4, R7: in any order, with copies and reports of deliveries among them; and a message whose instructions are not
    all relinquished is never complete, whatever comes instead."""
    rng = random.Random(seed)
    events = []
    for message, n in enumerate(touches):
        whole = [progress(message, number, n) for number in range(n or 1)]
        missing = n and rng.random() < 0.3
        heard = rng.sample(whole, len(whole) - 1) if missing else whole
        events += heard + (rng.choices(heard, k=3) if heard else []) + [outcome(message)]
    rng.shuffle(events)
    rows = [
        (event.id.encode(), encode(event), "progress", 0, offset, START_MS + 5000 + offset, [])
        for offset, event in enumerate(events)
    ]
    size = -(-len(rows) // BATCHES)
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    found = streamed(
        spark, tmp_path_factory.mktemp("completion"), batches, lambda df: completions(df, SHARDS, 7), "update"
    )

    heard_numbers: dict[str, set[int | None]] = defaultdict(set)
    due: dict[str, int] = {}
    for number, batch in enumerate(batches):
        for row in batch:
            event = decode(ProgressEvent, row[1])
            if event.kind == "outcome":
                continue
            heard_numbers[event.id].add(event.number)
            wanted = touches[int(event.id[1:])]
            if event.id not in due and len(heard_numbers[event.id]) == max(wanted, 1):
                due[event.id] = number
        given_now = {decode(CompletionEvent, row.value) for row in found[number]}
        first_now = {id for id, when in due.items() if when == number}
        assert first_now <= {event.id for event in given_now} <= due.keys(), f"batch {number}"
        for event in given_now:
            assert event.touches == touches[int(event.id[1:])]
            assert event.appended_ms == START_MS + int(event.id[1:])
            assert START_MS + 5000 <= event.completed_ms < START_MS + 5000 + len(rows)
    assert due, "nothing to complete"


def test_the_decisions_of_two_routers_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    """R4: one router knows the routes (two instructions), its twin sends to everyone (four): what is relinquished of
    both must not add up to either."""
    events = [
        progress(1, 0, 4, "everyone"),
        progress(1, 1, 2, "routed"),
        progress(1, 3, 4, "everyone"),
        progress(1, 2, 4, "everyone"),
        progress(1, 0, 2, "routed"),
    ]
    batches = [[(b"m1", encode(event), "progress", 0, n, START_MS + n, [])] for n, event in enumerate(events)]
    found = streamed(spark, tmp_path, batches, lambda df: completions(df, 4, 7), "update")
    assert [len(rows) for rows in found] == [0, 0, 0, 0, 1]
    assert decode(CompletionEvent, found[4][0].value).touches == 2
