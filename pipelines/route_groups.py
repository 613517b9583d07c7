"""Routes in groups: what a router joins its messages with.

A join with one row a route key costs each batch the more, the more keys there are: Spark collects, hashes and stores
all rows anew. So the keys that share a hash stand in one row, in which a message then looks for its key: there are
never more than some thousands of rows, each the longer the more routes there are.

Clients choose route keys, so the hash has a secret: who does not know the `salt` can't crowd a group. The catch-all
key, which tells until when the routes are known and changes with every look at them, is a group of its own.
"""

import secrets
from dataclasses import dataclass
from hashlib import md5

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.routes import TARGET
from schemas.identity import CATCH_ALL

DIGITS = 3
"""Of the hash, hexadecimal, that tell groups apart: 4,096 of them."""
SALT_BYTES = 8

GROUPED = f"group string, route_keys array<string>, targets array<array<{TARGET}>>, as_of timestamp"
"""The nth of `targets` are those of the nth of `route_keys`; `as_of` is that of the one key, if any, that has it.

`group` is a string, because Spark's hash table for integers takes 33 MB, however few they are.
"""


class RouteGroups:
    """Which group a route key is of: every one of these has a hash of its own."""

    def __init__(self) -> None:
        self._salt = secrets.token_hex(SALT_BYTES)

    def of(self, route_key: Column) -> Column:
        hashed = F.substring(F.md5(F.concat(F.lit(self._salt), route_key)), 1, DIGITS)
        return F.when(route_key == CATCH_ALL, route_key).otherwise(hashed)

    def of_key(self, route_key: str) -> str:
        """The same for one key."""
        if route_key == CATCH_ALL:
            return CATCH_ALL
        return md5(f"{self._salt}{route_key}".encode(), usedforsecurity=False).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class GroupedRoutes:
    """Routes as :data:`GROUPED`, and what tells of which group a key is."""

    groups: RouteGroups
    rows: DataFrame


def in_groups(routes: DataFrame) -> GroupedRoutes:
    """`routes` (`route_key, targets, as_of`, one row a key), grouped by Spark."""
    groups = RouteGroups()
    members = F.collect_list(F.struct("route_key", "targets")).alias("members")
    grouped = routes.groupBy(groups.of(F.col("route_key")).alias("group")).agg(members, F.max("as_of").alias("as_of"))
    rows = grouped.select("group", F.col("members.route_key").alias("route_keys"), "members.targets", "as_of")
    return GroupedRoutes(groups, rows)


class ArrowGrouping:
    """Groups the rows of one table again and again, for who has no time for a query of Spark's. Only keys that were not
    there the last time are hashed, which are nearly none: that takes a µs a key."""

    def __init__(self, groups: RouteGroups) -> None:
        self._groups = groups
        self._last_keys, self._last_groups = pa.array([], pa.string()), pa.array([], pa.string())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row a key) as :data:`GROUPED`."""
        keys = routes["route_key"].combine_chunks()
        named = {"group": self._groups_of(keys), "row": pa.arange(0, len(keys))}
        members = [("route_key", "list"), ("row", "list"), ("as_of", "max")]
        columns = pa.table({**named, "route_key": keys, "as_of": routes["as_of"]})
        grouped = columns.group_by("group", use_threads=False).aggregate(members)
        rows = grouped["row_list"].combine_chunks()
        targets = routes["targets"].combine_chunks().take(rows.values)
        return pa.table(
            {
                "group": grouped["group"],
                "route_keys": grouped["route_key_list"],
                "targets": pa.ListArray.from_arrays(rows.offsets, targets),
                "as_of": grouped["as_of_max"],
            }
        )

    def _groups_of(self, keys: pa.Array) -> pa.Array:
        groups = self._last_groups.take(pc.index_in(keys, value_set=self._last_keys))
        is_new = groups.is_null()
        new = pa.array([self._groups.of_key(key) for key in keys.filter(is_new).to_pylist()], pa.string())
        self._last_keys, self._last_groups = keys, pc.replace_with_mask(groups, is_new, new)
        return self._last_groups
