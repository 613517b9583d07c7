"""A fold with a state for each key, kept by Spark (`transformWithState`): JSON in, JSON out.

The state is one text for each key, read and written once for each key of a batch, in RocksDB. A key of which nothing is
heard for `kept_s` is forgotten; that is found by an index of its own, not by looking at all keys.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

Fold = Callable[[str | None, tuple[Any, ...], Iterable[Row]], tuple[str | None, Iterable[Row]]]
"""`(state, key, rows of a batch in any order) -> (new state, rows to give out)`; a new state of None leaves the old."""

STATE = "state string"


class FirstStates(NamedTuple):
    """What a query that has no state begins with: `rows` of the key's columns and `value`, of which `begun` makes the
    state of the key, or None if that cannot be read."""

    rows: DataFrame
    begun: Callable[[bytes], str | None]


def folded(
    rows: DataFrame, key: tuple[str, ...], fold: Fold, given: str, kept_s: int, first: FirstStates | None = None
) -> DataFrame:
    """The rows that `fold` gives out, of the schema `given` (DDL), in update mode. `first` is for a query that has
    never finished a batch, and for no other: Spark reads it for the first batch alone.

    Contract: every row is folded once into the state that its checkpoint has; a crash gives out a batch again, the
    same. `fold` runs in a Python process beside the executor: it is a plain function, or a partial of one.
    """
    processor = _Processor(fold, kept_s, first.begun if first else None)
    begins = first.rows.groupBy(*key) if first else None
    return rows.groupBy(*key).transformWithState(processor, given, "Update", "ProcessingTime", begins)


class _Processor(StatefulProcessor):
    def __init__(self, fold: Fold, kept_s: int, begun: Callable[[bytes], str | None] | None) -> None:
        self._fold = fold
        self._kept_s = kept_s
        self._begun = begun

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", STATE, ttlDurationMs=self._kept_s * 1000)

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,
        initialState: Any,  # noqa: N803 - Spark's name
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> None:
        state = self._begun(bytes(initialState["value"])) if self._begun else None
        if state is not None:
            self._state.update((state,))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        known = self._state.get()
        state, given = self._fold(None if known is None else known[0], key, rows)
        if state is not None:
            self._state.update((state,))
        yield from given

    def close(self) -> None:
        pass
