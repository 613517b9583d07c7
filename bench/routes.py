"""Routes tables to measure with."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from pipelines.routes import BUCKETS, CATCH_ALL_BUCKET
from schemas.identity import CATCH_ALL, hash_of
from schemas.tables import FAR_FUTURE

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
DESTINATIONS = 100


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


def _targets(shards: list[int]) -> list[dict[str, object]]:
    return [{"shard": shard, "effective_from": EPOCH, "effective_until": FAR_FUTURE} for shard in shards]
