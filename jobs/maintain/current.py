"""Tables of current state: removes expired rows.

The tables' queries drop them too, but only from the buckets that a batch rewrites, and from `presence` and
`message_presence` only on a record that ends the key. This module rewrites a bucket without them, in a commit that is
refused if anyone has written to the bucket since it was read; then it reads the bucket again. The queries do the same,
so neither undoes the other's work.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import structlog
from deltalake import DeltaTable, write_deltalake

from jobs.maintain.plan import Amount, Step, Stopping
from jobs.query.datasets import dataset
from pipelines.routing.routes import CATCH_ALL_BUCKET
from pipelines.storage.table_files import until_committed
from schemas.settings import Settings
from schemas.tables import MESSAGE_PRESENCE, PRESENCE, ROUTES, ROUTES_HISTORY

ENDED = "ended rows"

log = structlog.get_logger(__name__)

Ended = tuple[str, int, datetime]
"""An ended target: route key, shard, when."""


class Kept(NamedTuple):
    """What is kept of a bucket, and how many rows or targets are removed."""

    rows: pa.Table
    over: int


KeptOf = Callable[[pa.Table], Kept]


def kept_presence(rows: pa.Table, oldest: datetime) -> Kept:
    """Without clients that are offline and have not been heard from since `oldest`."""
    return _without(rows, pc.and_(pc.invert(rows["online"]), pc.less(rows["updated"], _moment(oldest))))


def kept_messages(rows: pa.Table, now: datetime) -> Kept:
    """Without messages whose retention has ended."""
    return _without(rows, pc.less(rows["kept_until"], _moment(now)))


def ended_before(rows: pa.Table, oldest: datetime) -> set[Ended]:
    """The targets of rows of `routes` that ended before `oldest`."""
    return {
        (row["route_key"], target["shard"], target["effective_until"])
        for row in _with_ended(rows, oldest).to_pylist()
        for target in row["targets"]
        if target["effective_until"] < oldest
    }


def kept_routes(rows: pa.Table, oldest: datetime, recorded: set[Ended]) -> Kept:
    """Without the targets that ended before `oldest`, if they are `recorded` in the history; rows without targets are
    removed too."""
    gone = ended_before(rows, oldest) & recorded
    if not gone:
        return Kept(rows, 0)

    def stays(row: dict[str, Any], target: dict[str, Any]) -> bool:
        return (row["route_key"], target["shard"], target["effective_until"]) not in gone

    kept = [row | {"targets": [target for target in row["targets"] if stays(row, target)]} for row in rows.to_pylist()]
    return Kept(pa.Table.from_pylist([row for row in kept if row["targets"]], rows.schema), len(gone))


def current_steps(settings: Settings, name: str, now: datetime) -> list[Step]:
    """What is due for the table `name`; nothing if it is not a table of current state."""
    uri = f"{settings.tables}/{name}"
    if name == PRESENCE.name:
        oldest = now - timedelta(seconds=settings.presence.kept_s)
        return _steps(uri, name, lambda rows: kept_presence(rows, oldest))
    if name == MESSAGE_PRESENCE.name:
        return _steps(uri, name, lambda rows: kept_messages(rows, now))
    return _route_steps(settings, uri) if name == ROUTES.name else []


def _route_steps(settings: Settings, uri: str) -> list[Step]:
    """Uses the same clock and window as the fold (:mod:`pipelines.routing.routes`). Leaves the catch-all row alone: the
    fold writes it with every batch."""
    routes = dataset(uri)
    (as_of,) = routes.to_table(["as_of"], ds.field("bucket") == CATCH_ALL_BUCKET)["as_of"].to_pylist() or [None]
    if as_of is None:
        return []
    oldest = as_of - timedelta(days=settings.ledger.message_window_days)
    ended = ended_before(routes.to_table(["route_key", "targets"], ds.field("bucket") != CATCH_ALL_BUCKET), oldest)
    if not ended:
        return []
    recorded = _recorded(f"{settings.tables}/{ROUTES_HISTORY.name}", ended)
    if ended - recorded:
        log.warning("kept ended routes that are missing in routes_history", routes=len(ended - recorded))
    return _steps(uri, ROUTES.name, lambda rows: kept_routes(rows, oldest, recorded))


def _recorded(uri: str, ended: set[Ended]) -> set[Ended]:
    """Those whose end is in `routes_history`."""
    times = [until for _, _, until in ended]
    effective = ds.field("effective")
    among = (effective >= _moment(min(times))) & (effective <= _moment(max(times))) & (ds.field("op") == "drop")
    drops = dataset(uri).to_table(["route_key", "shard", "effective"], among).to_pylist()
    return ended & {(row["route_key"], row["shard"], row["effective"]) for row in drops}


def _steps(uri: str, name: str, kept_of: KeptOf) -> list[Step]:
    """One step for all buckets that have rows to remove."""
    table = DeltaTable(uri)
    over = {bucket: kept_of(_rows(table, bucket)).over for bucket in _buckets(table)}
    due = sorted(bucket for bucket, rows in over.items() if rows)
    if not due:
        return []

    def perform(stopping: Stopping) -> None:
        for bucket in due:
            if stopping():
                return
            _rewrite(uri, bucket, kept_of)

    return [Step(name, ENDED, Amount(rows=sum(over.values())), perform)]


def _buckets(table: DeltaTable) -> list[int]:
    actions = pa.table(table.get_add_actions(flatten=True))
    return sorted(set(actions["partition.bucket"].to_pylist()) - {CATCH_ALL_BUCKET})


def _rows(table: DeltaTable, bucket: int) -> pa.Table:
    return dataset(table).to_table(filter=ds.field("bucket") == bucket)


def _rewrite(uri: str, bucket: int, kept_of: KeptOf) -> None:
    for attempt in until_committed():
        with attempt:
            table = DeltaTable(uri)
            kept = kept_of(_rows(table, bucket))
            if kept.over:
                write_deltalake(table, kept.rows, mode="overwrite", predicate=f"bucket = {bucket}")


def _without(rows: pa.Table, over: Any) -> Kept:
    known = pc.fill_null(over, False)
    return Kept(rows.filter(pc.invert(known)), pc.sum(known).as_py() or 0)


def _with_ended(rows: pa.Table, oldest: datetime) -> pa.Table:
    """The rows that have a target that ended before `oldest`."""
    targets = rows["targets"].combine_chunks()
    ended = pc.less(pc.struct_field(pc.list_flatten(targets), "effective_until"), _moment(oldest))
    parents = pc.list_parent_indices(targets).filter(pc.fill_null(ended, False))
    return rows.take(pc.unique(parents))


def _moment(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", "UTC"))
