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
from pipelines.routing.time_slices import in_slices, lists
from schemas.identity import CATCH_ALL, hash_of

BUCKETS = 4096
SUB_BUCKETS = 16
OVERSIZED = 1024
KEYS_PER_SUB_BUCKET = 8
"""For an oversized bucket, one of more than `OVERSIZED` keys. It then has more than `SUB_BUCKETS` sub-buckets."""
_SEED = 42
"""The seed of Spark's `xxhash64`."""
_DIGITS = 8
"""How many hexadecimal digits of the secret hash choose the sub-bucket."""

SUB_BUCKET_TARGETS = f"array<array<array<{TARGET}>>>"
"""By key and slice of time (:mod:`pipelines.routing.time_slices`)."""
BUCKETED = f"bucket string, route_keys array<array<string>>, targets array<{SUB_BUCKET_TARGETS}>, as_of timestamp"
"""`route_keys` and `targets` are in sub-buckets: the nth `targets` of a sub-bucket belong to its nth key. `as_of`
belongs to the one key, if any, that has it.

`bucket` is a string because Spark's hash table for integers takes 33 MB, however few there are.
"""


class RouteBuckets:
    """Which bucket and sub-bucket a route key belongs to. Each instance has its own hashes. Each function exists twice:
    for Spark, and for one key in Python."""

    def __init__(self) -> None:
        self._seed = secrets.randbits(31)
        # A separate secret: a patient attacker may find out the seed of a fast hash.
        self._salt = secrets.token_hex(8)
        # The state of `xxhash64` after the seed, before the key.
        self._key_seed = xxh64_intdigest(self._seed.to_bytes(8, "little"), seed=_SEED)

    def of(self, route_key: Column) -> Column:
        hashed = F.xxhash64(F.lit(self._seed).cast("long"), route_key).bitwiseAND(F.lit(BUCKETS - 1))
        return F.when(route_key == CATCH_ALL, route_key).otherwise(F.hex(hashed))

    def number_of(self, route_key: str) -> int:
        """The bucket as a number; `name_of` gives its name."""
        if route_key == CATCH_ALL:
            return BUCKETS
        return int(xxh64_intdigest(route_key.encode(), seed=self._key_seed)) & (BUCKETS - 1)

    def sub_bucket_of(self, route_key: Column, sub_buckets: Column) -> Column:
        """Which sub-bucket, 0 … `sub_buckets` - 1, of a bucket that has this many. The message's bucket hash cannot be
        reused, because it is part of the join: Spark would compute it a second time."""
        secret = F.conv(F.substring(F.md5(F.concat(F.lit(self._salt), route_key)), 1, _DIGITS), 16, 10).cast("long")
        fast = F.crc32(route_key.cast("binary"))
        return (F.when(sub_buckets == SUB_BUCKETS, fast).otherwise(secret) % sub_buckets).cast("int")

    def oversized_sub_bucket_of(self, route_key: str, sub_buckets: int) -> int:
        hashed = md5(f"{self._salt}{route_key}".encode(), usedforsecurity=False).hexdigest()
        return int(hashed[:_DIGITS], 16) % sub_buckets


def name_of(number: int) -> str:
    return CATCH_ALL if number == BUCKETS else f"{number:X}"


@dataclass(frozen=True)
class BucketedRoutes:
    """Routes as :data:`BUCKETED`, and the functions that map keys to buckets."""

    buckets: RouteBuckets
    rows: DataFrame


def in_buckets(routes: DataFrame) -> BucketedRoutes:
    """Reads `routes` (`route_key, targets, as_of`, one row per key) and puts them into buckets."""
    buckets = RouteBuckets()
    rows = ArrowBucketing(buckets).rows(routes.select("route_key", "targets", "as_of").toArrow())
    return BucketedRoutes(buckets, routes.sparkSession.createDataFrame(rows, BUCKETED))


class ArrowBucketing:
    """Puts the rows of one table into buckets again and again, without the time that a Spark query takes. Only keys
    that are new since the last time are hashed, which is nearly none: a µs per key."""

    def __init__(self, buckets: RouteBuckets) -> None:
        self._buckets = buckets
        self._last_keys, self._last_places = pa.array([], pa.string()), pa.array([], pa.int64())

    def rows(self, routes: pa.Table) -> pa.Table:
        """`routes` (`route_key, targets, as_of`, one row per key) as :data:`BUCKETED`."""
        keys, targets, as_of = (routes[name].combine_chunks() for name in ("route_key", "targets", "as_of"))
        targets = in_slices(targets)
        numbers, sub_buckets = np.divmod(self._places_of(keys).to_numpy(), SUB_BUCKETS)
        numbers, bucket, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
        split_into = np.where(sizes > OVERSIZED, sizes // KEYS_PER_SUB_BUCKET, SUB_BUCKETS)
        for nth in np.flatnonzero(split_into[bucket] != SUB_BUCKETS).tolist():
            sub_buckets[nth] = self._buckets.oversized_sub_bucket_of(keys[nth].as_py(), int(split_into[bucket[nth]]))
        first_sub_buckets = np.append(0, np.cumsum(split_into))
        places = first_sub_buckets[bucket] + sub_buckets
        order = np.argsort(places, kind="stable")
        sub_bucket_begins = np.append(np.searchsorted(places[order], np.arange(first_sub_buckets[-1])), len(places))
        return pa.table(
            {
                "bucket": pa.array([name_of(number) for number in numbers.tolist()], pa.string()),
                "route_keys": lists(lists(keys.take(order), sub_bucket_begins), first_sub_buckets),
                "targets": lists(lists(targets.take(order), sub_bucket_begins), first_sub_buckets),
                # From the first key of each bucket: a key with `as_of` is alone in its bucket.
                "as_of": as_of.take(order[sub_bucket_begins[first_sub_buckets[:-1]]]),
            }
        )

    def _places_of(self, keys: pa.Array) -> pa.Array:
        """The bucket of each key times `SUB_BUCKETS`, plus the sub-bucket it has if its bucket is not oversized."""
        places = self._last_places.take(pc.index_in(keys, value_set=self._last_keys))
        is_new = places.is_null()
        new = pa.array([self._place_of(key) for key in keys.filter(is_new).to_pylist()], pa.int64())
        self._last_keys, self._last_places = keys, pc.replace_with_mask(places, is_new, new)
        return self._last_places

    def _place_of(self, key: str) -> int:
        return self._buckets.number_of(key) * SUB_BUCKETS + hash_of(key) % SUB_BUCKETS
