"""Routes tables to measure with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.routing.routes import BUCKETS, CATCH_ALL_BUCKET, in_buckets
from schemas.identity import CATCH_ALL, hash_of
from schemas.tables import FAR_FUTURE

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
DESTINATIONS = 100
AHEAD = timedelta(hours=1)
"""By how much `as_of` is ahead of the clock: a tick that is late must not send anything to every shard."""


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
    stopped, moved = Event(), Event()

    def tick() -> None:
        while not stopped.wait(every_s):
            as_of_us = int((datetime.now(UTC) + AHEAD).timestamp() * 1e6)
            table = DeltaTable(str(tables / "routes"))
            table.update(updates={"as_of": f"to_timestamp_micros({as_of_us})"}, predicate=in_buckets([]))
            moved.set()

    thread = Thread(target=tick, name="ticks", daemon=True)
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
