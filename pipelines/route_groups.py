"""Routes in groups: what a router joins its messages with.

A join with one row a route key costs each batch the more, the more keys there are: Spark collects, hashes and stores
all rows anew. So the keys that share a hash stand in one row: there are never more than some thousands of rows, each
the longer the more routes there are. A row has its keys in parts, and a message looks for its key in one part.

Clients choose route keys, so the hash has a secret: who does not know the `salt` can't crowd a group, only a part of
it. The catch-all key, which tells until when the routes are known and changes with every look at them, is a group of
its own.
"""

import secrets
import zlib
from dataclasses import dataclass
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.routes import TARGET
from schemas.identity import CATCH_ALL

DIGITS = 3
"""Of the hash, hexadecimal, that tell groups apart: 4,096 of them."""
PARTS = 16
SALT_BYTES = 8

GROUPED = f"group string, route_keys array<array<string>>, targets array<array<array<{TARGET}>>>, as_of timestamp"
"""`route_keys` and `targets` are in parts: the nth `targets` of a part are those of its nth key. `as_of` is that of the
one key, if any, that has it.

`group` is a string, because Spark's hash table for integers takes 33 MB, however few they are.
"""


class RouteGroups:
    """Which group a route key is of: every one of these has a hash of its own."""

    def __init__(self) -> None:
        self._salt = secrets.token_hex(SALT_BYTES)

    def of(self, route_key: Column) -> Column:
        hashed = F.substring(F.md5(F.concat(F.lit(self._salt), route_key)), 1, DIGITS)
        return F.when(route_key == CATCH_ALL, route_key).otherwise(hashed)

    def number_of(self, route_key: str) -> int:
        """The same for one key, as the number that `name_of` has the name of."""
        if route_key == CATCH_ALL:
            return int(16**DIGITS)
        return int(md5(f"{self._salt}{route_key}".encode(), usedforsecurity=False).hexdigest()[:DIGITS], 16)


def name_of(number: int) -> str:
    return CATCH_ALL if number == 16**DIGITS else f"{number:0{DIGITS}x}"


def part_of(route_key: Column) -> Column:
    """Which part of its group, 0 … PARTS - 1. A message has a hash for its group already, but to join with: Spark would
    compute it a second time."""
    return (F.crc32(route_key.cast("binary")) % PARTS).cast("int")


def part_of_key(route_key: str) -> int:
    """The same for one key."""
    return zlib.crc32(route_key.encode()) % PARTS


@dataclass(frozen=True)
class GroupedRoutes:
    """Routes as :data:`GROUPED`, and what tells of which group a key is."""

    groups: RouteGroups
    rows: DataFrame


def in_groups(routes: DataFrame) -> GroupedRoutes:
    """`routes` (`route_key, targets, as_of`, one row a key), grouped by Spark."""
    groups, key = RouteGroups(), F.col("route_key")
    member = F.struct("route_key", "targets")
    parts = [F.collect_list(F.when(part_of(key) == part, member)).alias(f"part_{part}") for part in range(PARTS)]
    grouped = routes.groupBy(groups.of(key).alias("group")).agg(*parts, F.max("as_of").alias("as_of"))
    keys, targets = (
        F.array(*(F.col(f"part_{part}")[field] for part in range(PARTS))) for field in ("route_key", "targets")
    )
    return GroupedRoutes(groups, grouped.select("group", keys.alias("route_keys"), targets.alias("targets"), "as_of"))


class ArrowGrouping:
    """Groups the rows of one table again and again, for who has no time for a query of Spark's. Only keys that were not
    there the last time are hashed, which are nearly none: that takes a µs a key."""

    def __init__(self, groups: RouteGroups) -> None:
        self._groups = groups
        self._last_keys, self._last_places = pa.array([], pa.string()), pa.array([], pa.int64())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row a key) as :data:`GROUPED`."""
        places = self._places_of(routes["route_key"].combine_chunks()).to_numpy()
        order = np.argsort(places, kind="stable")
        places, routes = places[order], routes.take(order)
        numbers = np.unique(places // PARTS)
        parts = np.add.outer(numbers * PARTS, np.arange(PARTS)).ravel()
        begins = np.append(np.searchsorted(places, parts), len(places)).astype(np.int32)
        return pa.table(
            {
                "group": pa.array([name_of(number) for number in numbers.tolist()], pa.string()),
                "route_keys": _nested(routes["route_key"], begins),
                "targets": _nested(routes["targets"], begins),
                # Of the first of each group: who has one is alone in its own.
                "as_of": routes["as_of"].take(begins[:-1:PARTS]),
            }
        )

    def _places_of(self, keys: pa.Array) -> pa.Array:
        """The part of each, counted through all groups."""
        places = self._last_places.take(pc.index_in(keys, value_set=self._last_keys))
        is_new = places.is_null()
        new = pa.array([self._place_of(key) for key in keys.filter(is_new).to_pylist()], pa.int64())
        self._last_keys, self._last_places = keys, pc.replace_with_mask(places, is_new, new)
        return self._last_places

    def _place_of(self, key: str) -> int:
        return self._groups.number_of(key) * PARTS + part_of_key(key)


def _nested(values: pa.ChunkedArray, begins: np.ndarray) -> pa.Array:
    """A list of PARTS lists for each group."""
    parts = pa.ListArray.from_arrays(pa.array(begins), values.combine_chunks())
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(begins), PARTS, dtype=np.int32)), parts)
