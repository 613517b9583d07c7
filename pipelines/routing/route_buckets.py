"""Routes in buckets: the form in which a router joins its messages with them.

With one row per route key, the cost of the join would grow with the number of keys in every batch, because Spark
collects, hashes and stores all rows anew. So keys with the same hash share a row, a bucket. There are at most some
thousands of rows, which get longer with more routes. A row has its keys in sub-buckets, and a message looks for its key
in one sub-bucket.

Both hashes are fast, and neither is secret enough: clients choose route keys, and an attacker can find keys that share
a bucket and a sub-bucket. So an oversized bucket is split into more sub-buckets, chosen by a hash that nobody outside
the process can predict. It takes ten times as long, but only messages for that bucket need it.

The catch-all key, which carries the time until which the routes are known and changes with every refresh, has a bucket
of its own.
"""

import secrets
from dataclasses import dataclass
from hashlib import md5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from xxhash import xxh64_intdigest

from pipelines.routing.routes import TARGET
from schemas.identity import CATCH_ALL, hash_of

GROUPS = 4096
PARTS = 16
CROWD = 1024
KEYS_A_PART = 8
"""For an oversized bucket, one of more than `CROWD` keys. It then has more than `PARTS` sub-buckets."""
_SEED = 42
"""The seed of Spark's `xxhash64`."""
_DIGITS = 8
"""How many hexadecimal digits of the secret hash choose the sub-bucket."""

GROUPED = f"group string, route_keys array<array<string>>, targets array<array<array<{TARGET}>>>, as_of timestamp"
"""`route_keys` and `targets` are in sub-buckets: the nth `targets` of a sub-bucket belong to its nth key. `as_of`
belongs to the one key, if any, that has it.

`group` is a string because Spark's hash table for integers takes 33 MB, however few there are.
"""


class RouteGroups:
    """Which bucket and sub-bucket a route key belongs to. Each instance has its own hashes. Each function exists twice:
    for Spark, and for one key in Python."""

    def __init__(self) -> None:
        self._seed = secrets.randbits(31)
        # A separate secret: a patient attacker may find out the seed of a fast hash.
        self._salt = secrets.token_hex(8)
        # The state of `xxhash64` after the seed, before the key.
        self._key_seed = xxh64_intdigest(self._seed.to_bytes(8, "little"), seed=_SEED)

    def of(self, route_key: Column) -> Column:
        hashed = F.xxhash64(F.lit(self._seed).cast("long"), route_key).bitwiseAND(F.lit(GROUPS - 1))
        return F.when(route_key == CATCH_ALL, route_key).otherwise(F.hex(hashed))

    def number_of(self, route_key: str) -> int:
        """The bucket as a number; `name_of` gives its name."""
        if route_key == CATCH_ALL:
            return GROUPS
        return int(xxh64_intdigest(route_key.encode(), seed=self._key_seed)) & (GROUPS - 1)

    def part_of(self, route_key: Column, parts: Column) -> Column:
        """Which sub-bucket, 0 … `parts` - 1, of a bucket that has this many. The message's bucket hash cannot be
        reused, because it is part of the join: Spark would compute it a second time."""
        secret = F.conv(F.substring(F.md5(F.concat(F.lit(self._salt), route_key)), 1, _DIGITS), 16, 10).cast("long")
        fast = F.crc32(route_key.cast("binary"))
        return (F.when(parts == PARTS, fast).otherwise(secret) % parts).cast("int")

    def part_in_crowd(self, route_key: str, parts: int) -> int:
        hashed = md5(f"{self._salt}{route_key}".encode(), usedforsecurity=False).hexdigest()
        return int(hashed[:_DIGITS], 16) % parts


def name_of(number: int) -> str:
    return CATCH_ALL if number == GROUPS else f"{number:X}"


@dataclass(frozen=True)
class GroupedRoutes:
    """Routes as :data:`GROUPED`, and the functions that map keys to buckets."""

    groups: RouteGroups
    rows: DataFrame


def in_groups(routes: DataFrame) -> GroupedRoutes:
    """Reads `routes` (`route_key, targets, as_of`, one row per key) and puts them into buckets."""
    groups = RouteGroups()
    rows = ArrowGrouping(groups).rows(routes.select("route_key", "targets", "as_of").toArrow())
    return GroupedRoutes(groups, routes.sparkSession.createDataFrame(rows, GROUPED))


class ArrowGrouping:
    """Puts the rows of one table into buckets again and again, without the time that a Spark query takes. Only keys
    that are new since the last time are hashed, which is nearly none: a µs per key."""

    def __init__(self, groups: RouteGroups) -> None:
        self._groups = groups
        self._last_keys, self._last_places = pa.array([], pa.string()), pa.array([], pa.int64())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row per key) as :data:`GROUPED`."""
        keys, targets, as_of = (routes[name].combine_chunks() for name in ("route_key", "targets", "as_of"))
        numbers, parts = np.divmod(self._places_of(keys).to_numpy(), PARTS)
        numbers, group, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
        parts_of = np.where(sizes > CROWD, sizes // KEYS_A_PART, PARTS)
        for nth in np.flatnonzero(parts_of[group] != PARTS).tolist():
            parts[nth] = self._groups.part_in_crowd(keys[nth].as_py(), int(parts_of[group[nth]]))
        first_parts = np.append(0, np.cumsum(parts_of))
        places = first_parts[group] + parts
        order = np.argsort(places, kind="stable")
        part_begins = np.append(np.searchsorted(places[order], np.arange(first_parts[-1])), len(places))
        return pa.table(
            {
                "group": pa.array([name_of(number) for number in numbers.tolist()], pa.string()),
                "route_keys": _lists(_lists(keys.take(order), part_begins), first_parts),
                "targets": _lists(_lists(targets.take(order), part_begins), first_parts),
                # From the first key of each bucket: a key with `as_of` is alone in its bucket.
                "as_of": as_of.take(order[part_begins[first_parts[:-1]]]),
            }
        )

    def _places_of(self, keys: pa.Array) -> pa.Array:
        """The bucket of each key times `PARTS`, plus the sub-bucket it has if its bucket is not oversized."""
        places = self._last_places.take(pc.index_in(keys, value_set=self._last_keys))
        is_new = places.is_null()
        new = pa.array([self._place_of(key) for key in keys.filter(is_new).to_pylist()], pa.int64())
        self._last_keys, self._last_places = keys, pc.replace_with_mask(places, is_new, new)
        return self._last_places

    def _place_of(self, key: str) -> int:
        return self._groups.number_of(key) * PARTS + hash_of(key) % PARTS


def _lists(values: pa.Array, begins: np.ndarray) -> pa.Array:
    """One list from each of `begins` to the next."""
    return pa.ListArray.from_arrays(pa.array(begins.astype(np.int32)), values)
