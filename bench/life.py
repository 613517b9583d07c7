"""What messages leave on Kafka when a fleet of devices sends them: records for measurements of the ledger, also as
files that a streaming query reads as if they came from Kafka.

Each message is wanted by one shard and delivered to one client; payloads are random, so nothing compresses them.
"""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from schemas.envelope import Headers, Instruction, Meta, ingress_headers
from schemas.events import CompletionEvent, PresenceEvent, ProgressEvent, RecipientOutcome, RouteEvent, encode
from schemas.identity import new_message_id

PAYLOAD_BYTES = 256
INTERVAL_MS = 5
ROUTERS = (b"active", b"backup")
SENDERS = 5000

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


class Written(NamedTuple):
    """A record. `number` is that of the message, `topic` without prefix, `at_ms` its append time; `is_copy` of what the
    second router has written."""

    number: int
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    at_ms: int
    headers: Headers | None = None
    is_copy: bool = False


def life(numbers: Iterable[int], partitions: int, shards: int, begin_ms: int) -> Iterator[Written]:
    """The records of these messages, one sent every INTERVAL_MS from `begin_ms` on: a coming and a route for each, too.
    Records of a topic in the order of their offsets, `partitions` for all but `egress`, which has `shards`."""
    for n in numbers:
        now_ms = begin_ms + INTERVAL_MS * n
        message, source, client = new_message_id(), f"truck-{n * 7919 % SENDERS:05}", f"dashboard-{n % 200:03}"
        partition, offset, shard = n % partitions, n // partitions, n % shards
        headers = ingress_headers(message, source, Meta(1, "", None, now_ms * 1000, None), b"")
        destination, key = f"fleet/{n % 40}/{source}/position".encode(), message.encode()
        payload = os.urandom(PAYLOAD_BYTES)
        yield Written(n, "ingress", partition, offset, destination, payload, now_ms, headers)
        instruction = Instruction(partition, offset, 0, 1, now_ms).encode()
        for copy, router in enumerate(ROUTERS):
            routed = [*headers, ("instr", instruction), ("router", router)]
            at = (shard, n // shards * len(ROUTERS) + copy)
            yield Written(n, "egress", *at, destination, payload, now_ms + 2, routed, copy > 0)
        delivery = RecipientOutcome(client=client, outcome="delivered", qos=1, at_us=now_ms * 1000 + 3457)
        done = ProgressEvent(
            kind="relinquish",
            id=message,
            partition=partition,
            offset=offset,
            shard=shard,
            number=0,
            limit=1,
            appended_ms=now_ms,
            deliveries=[delivery],
        )
        yield Written(n, "progress", partition, offset, key, encode(done), now_ms + 5)
        whole = CompletionEvent(id=message, touches=1, appended_ms=now_ms, completed_ms=now_ms + 5)
        yield Written(n, "completion", partition, offset, key, encode(whole), now_ms + 900)
        came = PresenceEvent(
            client=source,
            event="connected",
            gateway="gateway-1",
            epoch=now_ms * 1000,
            seq=1,
            at_us=now_ms * 1000,
            peer=f"10.0.{n % 250}.{n % 199}:{30000 + n % 20000}",
            protocol="mqtt5",
            user=source,
        )
        yield Written(n, "presence", partition, offset, source.encode(), encode(came), now_ms)
        wanted = RouteEvent(op="add", route_key=f"fleet/{n}", shard=shard)
        yield Written(n, "routes", 0, n, wanted.kafka_key.encode(), encode(wanted), now_ms)


def write_batch(directory: Path, number: int, records: Iterable[Written]) -> None:
    """One file in a directory for each topic."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        rows.setdefault(one.topic, []).append(_row(one))
    for topic, found in rows.items():
        (directory / topic).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(found, _SCHEMA), directory / topic / f"{number}.parquet")


def stream(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """A batch of the query for each file."""
    files = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / topic))
    return files.coalesce(1)


def _row(one: Written) -> dict[str, Any]:
    headers = None if one.headers is None else [{"key": name, "value": content} for name, content in one.headers]
    return {
        "key": one.key,
        "value": one.value,
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": datetime.fromtimestamp(one.at_ms / 1000, UTC),
        "headers": headers,
    }
