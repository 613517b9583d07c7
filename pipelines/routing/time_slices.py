"""The targets of a route key by time: a message looks only at those that can be in effect at its append time.

A route key whose subscriber comes and goes has thousands of intervals that have ended, and all must be kept for a
window: a router may work off a backlog, or repeat it. So the targets of such a key are in slices. A message looks into
one, by its append time. A short target, of at most `SLICE_S`, is in the slices it overlaps, one or two. The others are
in every slice. The slices take turns: the nth hour since the epoch has slice n modulo their number.

With n targets in all, l of them long, a slice has about max(2l, l + `PER_SLICE`) targets, and those short ones that
overlap the same hour; all slices together have at most 3n. A key with `FEW` targets or less has one slice.

Contract: every target that is in effect at a moment is in the moment's slice, once. Nothing depends on a clock.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

SLICE_S = 3600
FEW = 16
PER_SLICE = 8


def in_slices(targets: pa.ListArray) -> pa.ListArray:
    """The `targets` of each key (:data:`pipelines.routing.routes.TARGET`) as a list of slices, at least one each."""
    counts = pc.list_value_length(targets).to_numpy()
    if not np.any(counts > FEW):
        return lists(targets, np.arange(len(targets) + 1))
    flat = targets.flatten()
    slice_us = SLICE_S * 1_000_000
    begin_us, end_us = (_micros(flat, name) for name in ("effective_from", "effective_until"))
    key = np.repeat(np.arange(len(counts)), counts)
    is_short = end_us - begin_us <= slice_us
    short_counts = np.bincount(key[is_short], minlength=len(counts))
    sliced = short_counts // np.maximum(PER_SLICE, counts - short_counts)
    slices = np.where(counts > FEW, np.maximum(1, sliced), 1)
    key_begins = np.append(0, np.cumsum(slices))
    short, long = np.flatnonzero(is_short), np.flatnonzero(~is_short)
    first, last = (us[short] // slice_us % slices[key[short]] for us in (begin_us, end_us - 1))
    # Each slice of the key of each long target: 0 … slices - 1, for one target after the other.
    of_long = slices[key[long]]
    every = np.arange(of_long.sum()) - np.repeat(np.cumsum(of_long) - of_long, of_long)
    member = np.concatenate([short, short[first != last], np.repeat(long, of_long)])
    place = key_begins[key[member]] + np.concatenate([first, last[first != last], every])
    order = np.lexsort((member, place))
    slice_begins = np.searchsorted(place[order], np.arange(key_begins[-1] + 1))
    return lists(lists(flat.take(pa.array(member[order])), slice_begins), key_begins)


def slice_of(moment: Column, slices: Column) -> Column:
    """Which slice, 0 … `slices` - 1, a message appended at `moment` looks into."""
    return F.pmod(F.floor(F.unix_seconds(moment) / SLICE_S), slices).cast("int")


def lists(values: pa.Array, begins: np.ndarray) -> pa.ListArray:
    """One list from each of `begins` to the next."""
    return pa.ListArray.from_arrays(pa.array(begins.astype(np.int32)), values)


def _micros(targets: pa.StructArray, name: str) -> np.ndarray:
    """A time of each target, µs since the epoch."""
    times = targets.field(name)
    return np.asarray(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()))
