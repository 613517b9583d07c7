"""Compares the two slots of feeds while batches come, for metrics: lag, differences, what neither has, how far each is.

Everything is bounded. Copies that wait for the other slot's are remembered, up to `copies_max`; the oldest are then
forgotten, and their pairs are not measured. The comparison begins anew with each start of the ledger. What must be
exact is asked of the tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.feeds.copies import ACTIVE, BACKUP
from pipelines.feeds.missing_numbers import MissingNumbers

OF = ("feed", "stream", "sequence", "part")
US_A_SECOND = 1_000_000


class Limits(NamedTuple):
    """`copies_max` wait for the other slot's; `streams_max` source streams are followed, then the one that was followed
    first is dropped; `ranges_max` missing ranges of each are remembered."""

    copies_max: int = 200_000
    streams_max: int = 10_000
    ranges_max: int = 1_000


class Pairs(NamedTuple):
    """Pairs of copies of one feed: how much later the backup's was appended, in seconds, and how many differ."""

    feed: str
    lags_s: npt.NDArray[np.float64]
    differences: int


class SlotState(NamedTuple):
    """`behind`: numbers that the other slot has passed, and this one has not; `appended_s`: when its last record was
    appended, seconds since the epoch."""

    feed: str
    slot: str
    behind: int
    appended_s: float


class Reporter(Protocol):
    """Who is told after each batch."""

    def brought(self, feed: str, slot: str, copies: int, duplicates: int) -> None: ...

    def paired(self, pairs: Pairs) -> None: ...

    def states(self, slots: Sequence[SlotState], lost: Mapping[str, int]) -> None:
        """All slots; and by feed, how many numbers are missing that both slots have passed."""


class FeedComparison:
    """Takes the batches of the query `feed_copies`, each once."""

    def __init__(self, reporter: Reporter, limits: Limits = Limits()) -> None:  # noqa: B008
        self._reporter = reporter
        self._limits = limits
        self._waiting: pa.Table | None = None
        self._streams: dict[tuple[str, str], MissingNumbers] = {}
        self._appended: dict[tuple[str, str], float] = {}

    def resume(self, appended: Iterable[pa.RecordBatch]) -> None:
        """`appended`: `feed, slot, appended` of rows of `feed_progress`, which are many: taken one batch at a time. So
        a slot that has fallen silent before this start is known."""
        for rows in appended:
            newest = pa.Table.from_batches([rows]).group_by(["feed", "slot"]).aggregate([("appended", "max")])
            for row in newest.to_pylist():
                of, at_s = (row["feed"], row["slot"]), row["appended_max"].timestamp()
                self._appended[of] = max(at_s, self._appended.get(of, 0.0))
        self._reporter.states(list(self._states()), self._lost())

    def take(self, copies: pa.Table | None, progress: Sequence[Mapping[str, Any]]) -> None:
        """`copies`: new rows of `feed_copies`, with the columns :data:`COMPARED`; None if there are none. `progress`:
        rows of `feed_progress`."""
        if copies is not None and copies.num_rows:
            self._pair(_sides(copies))
            for of, numbers in _by_stream(copies):
                self._stream(of).take(numbers)
        for row in progress:
            slot, known = (row["feed"], row["slot"]), self._stream((row["feed"], row["stream"]))
            for number in (row["highest"], row["passed"]):
                if number is not None:
                    known.passed(row["slot"], number)
            self._appended[slot] = max(row["appended"].timestamp(), self._appended.get(slot, 0.0))
            self._reporter.brought(*slot, row["copies"], row["duplicates"])
        if progress:
            self._reporter.states(list(self._states()), self._lost())

    def _stream(self, of: tuple[str, str]) -> MissingNumbers:
        if of not in self._streams:
            self._streams[of] = MissingNumbers(self._limits.ranges_max)
            if len(self._streams) > self._limits.streams_max:
                del self._streams[next(iter(self._streams))]
        return self._streams[of]

    def _pair(self, sides: pa.Table) -> None:
        known = sides if self._waiting is None else pa.concat_tables([self._waiting, sides])
        grouped = known.group_by(list(OF), use_threads=False).aggregate(
            [(name, "max") for name in (ACTIVE, BACKUP)] + [("content", "min"), ("content", "max")]
        )
        names = [name.removesuffix("_max") if name in (f"{ACTIVE}_max", f"{BACKUP}_max") else name
                 for name in grouped.column_names]  # fmt: skip
        grouped = grouped.rename_columns(names)
        is_pair = pc.and_(pc.is_valid(grouped[ACTIVE]), pc.is_valid(grouped[BACKUP]))
        single = grouped.filter(pc.invert(is_pair)).rename_columns(
            [{"content_max": "content"}.get(name, name) for name in grouped.column_names]
        )
        self._waiting = single.select(sides.column_names).slice(max(0, single.num_rows - self._limits.copies_max))
        pairs = grouped.filter(is_pair)
        for feed in pc.unique(pairs["feed"]).to_pylist():
            of_feed = pairs.filter(pc.equal(pairs["feed"], feed))
            lags = pc.subtract(of_feed[BACKUP], of_feed[ACTIVE]).to_numpy() / US_A_SECOND
            differ = pc.sum(pc.not_equal(of_feed["content_min"], of_feed["content_max"])).as_py()
            self._reporter.paired(Pairs(feed, lags, int(differ or 0)))

    def _slots(self, feed: str) -> list[str]:
        return [slot for of, slot in self._appended if of == feed]

    def _states(self) -> Iterator[SlotState]:
        for (feed, slot), appended_s in self._appended.items():
            behind = sum(one.behind(slot) for (of, _), one in self._streams.items() if of == feed)
            yield SlotState(feed, slot, behind, appended_s)

    def _lost(self) -> dict[str, int]:
        found = dict.fromkeys((feed for feed, _ in self._appended), 0)
        for (feed, _), one in self._streams.items():
            if feed in found:
                found[feed] += one.lost(self._slots(feed))
        return found


COMPARED = (*OF, "slot", "crc32", "payload_bytes", "appended")


def _sides(copies: pa.Table) -> pa.Table:
    """The copies with their append times, µs, in the column of their slot, and what identifies their contents."""
    appended = copies["appended"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    sides = {name: pc.if_else(pc.equal(copies["slot"], name), appended, None) for name in (ACTIVE, BACKUP)}
    # CRC-32 in the upper half; payloads are far shorter than 2^31.
    content = pc.bit_wise_xor(pc.shift_left(copies["crc32"], 31), copies["payload_bytes"])
    return pa.table({**{name: copies[name] for name in OF}, **sides, "content": content})


def _by_stream(copies: pa.Table) -> Iterator[tuple[tuple[str, str], npt.NDArray[np.int64]]]:
    of_source = copies.filter(pc.equal(copies["part"], 0))
    groups = of_source.group_by(["feed", "stream"], use_threads=False).aggregate([("sequence", "list")])
    lists = groups["sequence_list"].combine_chunks() if groups.num_rows else []
    for feed, stream, numbers in zip(groups["feed"].to_pylist(), groups["stream"].to_pylist(), lists, strict=True):
        yield (feed, stream), numbers.values.to_numpy()
