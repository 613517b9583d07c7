"""Routes in groups: what a router joins its messages with.

A join with one row a route key costs each batch the more, the more keys there are: Spark collects, hashes and stores
all rows anew. So the keys that share a hash stand in one row: there are never more than some thousands of rows, each
the longer the more routes there are. A row has its keys in parts, by a further digit of their hash, and a message looks
for its key in one part.

Clients choose route keys, so the hash has a secret: who does not know the `salt` can't crowd a group. The catch-all
key, which tells until when the routes are known and changes with every look at them, is a group of its own.
"""

import secrets
from dataclasses import dataclass
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.routes import TARGET
from schemas.identity import CATCH_ALL

HEXADECIMAL = "0123456789abcdef"
PARTS = len(HEXADECIMAL)
DIGITS = 3
"""Of the hash that tell groups apart: 4,096 of them. The next one tells the part."""
SALT_BYTES = 8

GROUPED = "group string, route_keys array<array<string>>, targets array<array<array<" + TARGET + ">>>, as_of timestamp"
"""`route_keys` and `targets` are in parts: the nth `targets` of a part are those of its nth key. `as_of` is that of the
one key, if any, that has it.

`group` is a string, because Spark's hash table for integers takes 33 MB, however few they are.
"""


class RouteGroups:
    """Which group, and which part of it, a route key is of: every one of these has a hash of its own."""

    def __init__(self) -> None:
        self._salt = secrets.token_hex(SALT_BYTES)

    def hash_of(self, route_key: Column) -> Column:
        """Hexadecimal, DIGITS and one; that of the catch-all begins with what no other has."""
        hashed = F.substring(F.md5(F.concat(F.lit(self._salt), route_key)), 1, DIGITS + 1)
        return F.when(route_key == CATCH_ALL, _hash_of_catch_all()).otherwise(hashed)

    def hash_of_key(self, route_key: str) -> str:
        """The same for one key."""
        if route_key == CATCH_ALL:
            return _hash_of_catch_all()
        return md5(f"{self._salt}{route_key}".encode(), usedforsecurity=False).hexdigest()[: DIGITS + 1]


def group_of(hashed: Column) -> Column:
    return F.substring(hashed, 1, DIGITS)


def part_of(hashed: Column) -> Column:
    """0 … PARTS - 1."""
    return F.instr(F.lit(HEXADECIMAL), F.substring(hashed, DIGITS + 1, 1)) - 1


@dataclass(frozen=True)
class GroupedRoutes:
    """Routes as :data:`GROUPED`, and what tells of which group a key is."""

    groups: RouteGroups
    rows: DataFrame


def in_groups(routes: DataFrame) -> GroupedRoutes:
    """`routes` (`route_key, targets, as_of`, one row a key), grouped by Spark."""
    groups = RouteGroups()
    hashed, member = groups.hash_of(F.col("route_key")), F.struct("route_key", "targets")
    parts = [F.collect_list(F.when(part_of(hashed) == part, member)).alias(f"part_{part}") for part in range(PARTS)]
    grouped = routes.groupBy(group_of(hashed).alias("group")).agg(*parts, F.max("as_of").alias("as_of"))
    keys, targets = (
        F.array(*(F.col(f"part_{part}")[field] for part in range(PARTS))) for field in ("route_key", "targets")
    )
    return GroupedRoutes(groups, grouped.select("group", keys.alias("route_keys"), targets.alias("targets"), "as_of"))


class ArrowGrouping:
    """Groups the rows of one table again and again, for who has no time for a query of Spark's. Only keys that were not
    there the last time are hashed, which are nearly none: that takes a µs a key."""

    def __init__(self, groups: RouteGroups) -> None:
        self._groups = groups
        self._last_keys, self._last_hashes = pa.array([], pa.string()), pa.array([], pa.string())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row a key) as :data:`GROUPED`."""
        hashes = self._hashes_of(routes["route_key"].combine_chunks())
        order = pc.sort_indices(hashes)
        hashes, sorted_routes = hashes.take(order), routes.take(order)
        groups = pc.utf8_slice_codeunits(hashes, 0, DIGITS).dictionary_encode()
        parts = pc.index_in(pc.utf8_slice_codeunits(hashes, DIGITS), value_set=pa.array(HEXADECIMAL))
        begins = _begins(groups.indices.to_numpy() * PARTS + parts.to_numpy(), len(groups.dictionary) * PARTS)
        return pa.table(
            {
                "group": groups.dictionary,
                "route_keys": _nested(sorted_routes["route_key"], begins),
                "targets": _nested(sorted_routes["targets"], begins),
                # Of the first of each group: who has one is alone in its own.
                "as_of": sorted_routes["as_of"].take(begins[:-1:PARTS]),
            }
        )

    def _hashes_of(self, keys: pa.Array) -> pa.Array:
        hashes = self._last_hashes.take(pc.index_in(keys, value_set=self._last_keys))
        is_new = hashes.is_null()
        new = pa.array([self._groups.hash_of_key(key) for key in keys.filter(is_new).to_pylist()], pa.string())
        self._last_keys, self._last_hashes = keys, pc.replace_with_mask(hashes, is_new, new)
        return self._last_hashes


def _hash_of_catch_all() -> str:
    return CATCH_ALL + HEXADECIMAL[0] * DIGITS


def _begins(places: np.ndarray, count: int) -> np.ndarray:
    """Where in `places` (ascending, below `count`) each of the `count` begins, and where the last one ends."""
    return np.searchsorted(places, np.arange(count + 1)).astype(np.int32)


def _nested(values: pa.ChunkedArray, begins: np.ndarray) -> pa.Array:
    """A list of PARTS lists for each group."""
    parts = pa.ListArray.from_arrays(pa.array(begins), values.combine_chunks())
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(begins), PARTS, dtype=np.int32)), parts)
