"""Routes tables to measure routers with, load on `ingress`, and what comes out on `egress`: first copies' latencies."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable, write_deltalake

from jobs.stack.topics import admin_client, topic_ends
from pipelines.routing.routes import BUCKETS, CATCH_ALL_BUCKET, in_buckets
from schemas.envelope import Headers, Meta, ingress_headers
from schemas.identity import CATCH_ALL, hash_of, new_message_id
from schemas.tables import FAR_FUTURE

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
DESTINATIONS = 100
AHEAD = timedelta(hours=1)
"""By how much `as_of` is ahead of the clock: a tick that is late must not send anything to every shard."""
PAYLOAD_BYTES = 256
_STAMP = slice(0, 20)


@dataclass
class Latencies:
    """Milliseconds from `produce` to receipt of the first copy of each instruction, and when that was on the clock of
    `time.perf_counter`; `copies` counts later ones."""

    first_ms: list[float] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    copies: int = 0


def headers_of() -> Headers:
    return ingress_headers(new_message_id(), "bench", Meta(1, "", None, 0, None), b"\0")


def measure_latency(
    bootstrap: str, ingress: str, egress: str, topics: list[str], rate: float, seconds: float, copies_expected: int
) -> Latencies:
    """Produces to `topics` (destinations) in turn at `rate` messages a second for `seconds`, both partitions; every
    message gives `copies_expected` instructions. Waits until all first copies are there."""
    found = Latencies()
    # Late copies of an earlier measurement on these topics may still come: each has a mark of its own.
    mark = os.urandom(8)
    total = int(rate * seconds)
    ((_, ends),) = topic_ends(admin_client(bootstrap, {}), egress)
    done = threading.Event()
    reader = threading.Thread(target=_read, args=(bootstrap, egress, ends, mark, total * copies_expected, found, done))
    reader.start()
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        padding = mark + b"x" * (PAYLOAD_BYTES - _STAMP.stop - len(mark))
        began = time.perf_counter()
        for number in range(total):
            value = b"%020d" % time.perf_counter_ns() + padding
            producer.produce(
                ingress,
                value,
                topics[number % len(topics)].encode(),
                number % 2,
                headers=headers_of(),  # type: ignore[arg-type]
            )
            producer.poll(0)
            pause = began + (number + 1) / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
        producer.flush(30)
        done.wait(60)
    finally:
        done.set()
        reader.join()
    return found


def fill(bootstrap: str, ingress: str, topics: list[str], count: int) -> None:
    """Puts `count` records on `ingress`, half in each partition, as fast as it goes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    headers, value = headers_of(), b"x" * PAYLOAD_BYTES
    keys = [topic.encode() for topic in topics]
    for number in range(count):
        producer.produce(ingress, value, keys[number % len(keys)], number % 2, headers=headers)  # type: ignore[arg-type]
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)


def _read(
    bootstrap: str,
    topic: str,
    ends: list[int],
    mark: bytes,
    wanted: int,
    found: Latencies,
    done: threading.Event,
) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
    )
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in enumerate(ends)])
    seen: set[Any] = set()
    while not done.is_set() and len(found.first_ms) < wanted:
        record = consumer.poll(0.05)
        if record is None or record.error() is not None:
            continue
        now = time.perf_counter_ns()
        value, headers = record.value() or b"", cast(Any, record.headers())
        if not value.startswith(mark, _STAMP.stop):
            continue
        instruction = headers[4][1] if len(headers) > 4 else headers[0][1]
        if (record.partition(), instruction) in seen:
            found.copies += 1
            continue
        seen.add((record.partition(), instruction))
        found.first_ms.append((now - int(value[_STAMP])) / 1e6)
        found.arrivals_s.append(now / 1e9)
    done.set()
    consumer.close()


def write_routes(tables: Path, routes: int, shards_of: Callable[[int], list[int]]) -> list[str]:
    """A routes table of `routes` keys, the nth wanted by `shards_of(n)`, known for ever; returns topics to publish to,
    the same for any number of routes."""
    keys = [f"bench/{number}" for number in range(routes)]
    stamp = pa.timestamp("us", tz="UTC")
    struct = pa.struct([("shard", pa.int32()), ("effective_from", stamp), ("effective_until", stamp)])
    rows = pa.table(
        {
            "route_key": [CATCH_ALL, *keys],
            "bucket": pa.array([CATCH_ALL_BUCKET, *(hash_of(key) % BUCKETS for key in keys)], pa.int32()),
            "targets": pa.array([[], *(_targets(shards_of(number)) for number in range(routes))], pa.list_(struct)),
            "as_of": pa.array([FAR_FUTURE, *([None] * routes)], stamp),
        }
    )
    write_deltalake(str(tables / "routes"), rows, mode="overwrite", partition_by=["bucket"])
    return [f"{key}/x" for key in keys[:DESTINATIONS]]


@contextmanager
def ticking(tables: Path, every_s: float) -> Iterator[None]:
    """Meanwhile `as_of` moves on every `every_s` seconds, with a commit as the fold makes it for a tick: whoever holds
    the routes in memory has to take the table over as often as in life. Raises RuntimeError if it did not move."""
    stopped, moved = threading.Event(), threading.Event()

    def tick() -> None:
        while not stopped.wait(every_s):
            as_of_us = int((datetime.now(UTC) + AHEAD).timestamp() * 1e6)
            table = DeltaTable(str(tables / "routes"))
            table.update(updates={"as_of": f"to_timestamp_micros({as_of_us})"}, predicate=in_buckets([]))
            moved.set()

    thread = threading.Thread(target=tick, name="ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    if not moved.is_set():
        raise RuntimeError(f"as_of of {tables / 'routes'} has not moved")


def _targets(shards: list[int]) -> list[dict[str, object]]:
    return [{"shard": shard, "effective_from": EPOCH, "effective_until": FAR_FUTURE} for shard in shards]
