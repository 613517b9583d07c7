"""Routes in groups: what a router joins its messages with.

A join with one row a route key costs each batch the more, the more keys there are: Spark collects, hashes and stores
all rows anew. So the keys that share a hash stand in one row: there are never more than some thousands of rows, each
the longer the more routes there are. A row has its keys in parts, and a message looks for its key in one part.

Both hashes are fast and neither is secret enough: clients choose route keys, and who tries can find keys that share a
group and a part. A group that has become a crowd has the more parts, and keys are in them by a hash that nobody
outside the process can foresee; it takes ten times as long, and only messages for that group do it.

The catch-all key, which tells until when the routes are known and changes with every look at them, is a group of its
own.
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
"""Of a crowd, which is a group of more than `CROWD` keys: so that it has not `PARTS` parts."""
_SEED = 42
"""Of Spark's `xxhash64`."""
_DIGITS = 8
"""Of the secret hash, hexadecimal, that tell parts apart."""

GROUPED = f"group string, route_keys array<array<string>>, targets array<array<array<{TARGET}>>>, as_of timestamp"
"""`route_keys` and `targets` are in parts: the nth `targets` of a part are those of its nth key. `as_of` is that of the
one key, if any, that has it.

`group` is a string, because Spark's hash table for integers takes 33 MB, however few they are.
"""


class RouteGroups:
    """Which group a route key is of, and in which part of it: every one of these has hashes of its own. Each comes
    twice, for Spark and for one key in Python."""

    def __init__(self) -> None:
        self._seed = secrets.randbits(31)
        # A secret of its own: who is patient may find out that of a fast hash.
        self._salt = secrets.token_hex(8)
        # As `xxhash64` goes on from what is before the key.
        self._key_seed = xxh64_intdigest(self._seed.to_bytes(8, "little"), seed=_SEED)

    def of(self, route_key: Column) -> Column:
        hashed = F.xxhash64(F.lit(self._seed).cast("long"), route_key).bitwiseAND(F.lit(GROUPS - 1))
        return F.when(route_key == CATCH_ALL, route_key).otherwise(F.hex(hashed))

    def number_of(self, route_key: str) -> int:
        """The group as the number that `name_of` has the name of."""
        if route_key == CATCH_ALL:
            return GROUPS
        return int(xxh64_intdigest(route_key.encode(), seed=self._key_seed)) & (GROUPS - 1)

    def part_of(self, route_key: Column, parts: Column) -> Column:
        """Which part, 0 … `parts` - 1, of a group that has so many. A message has a hash for its group already, but to
        join with: Spark would compute it a second time."""
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
    """Routes as :data:`GROUPED`, and what tells of which group a key is."""

    groups: RouteGroups
    rows: DataFrame


def in_groups(routes: DataFrame) -> GroupedRoutes:
    """`routes` (`route_key, targets, as_of`, one row a key), which are read for it."""
    groups = RouteGroups()
    rows = ArrowGrouping(groups).rows(routes.select("route_key", "targets", "as_of").toArrow())
    return GroupedRoutes(groups, routes.sparkSession.createDataFrame(rows, GROUPED))


class ArrowGrouping:
    """Groups the rows of one table again and again, for who has no time for a query of Spark's. Only keys that were not
    there the last time are hashed, which are nearly none: that takes a µs a key."""

    def __init__(self, groups: RouteGroups) -> None:
        self._groups = groups
        self._last_keys, self._last_places = pa.array([], pa.string()), pa.array([], pa.int64())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row a key) as :data:`GROUPED`."""
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
                # Of the first of each group: who has one is alone in its own.
                "as_of": as_of.take(order[part_begins[first_parts[:-1]]]),
            }
        )

    def _places_of(self, keys: pa.Array) -> pa.Array:
        """The group of each, and the part if it is none of a crowd: `PARTS` times the one, and the other."""
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
