"""Keeping two routers half a batch apart: pure arithmetic on when batches begin."""

from dataclasses import dataclass

OFF_FRACTION = 1 / 4
"""How much of a batch a router may drift before it is realigned: the twin's pause is half a batch away."""

SETTLED_BATCHES = 2
"""A router is not realigned before it has run so many batches: busy machines jitter, and realigning pauses."""

_SMOOTHING = 0.3


def next_start(now: float, batch_s: float, anchor: float) -> float:
    """The next moment after `now` (seconds since the epoch) at which a batch in phase with `anchor` begins."""
    return now + (anchor - now) % batch_s


@dataclass
class Drift:
    """How far a query's batches are from their phase, and how long it pauses between two.

    `anchor` is a moment at which a batch should begin; all times are seconds.
    """

    batch_s: float
    anchor: float
    pause_s: float = 0.0
    off_s: float = 0.0
    _trigger_s: float = 0.0
    _batch_id: int | None = None
    _began: float = 0.0
    _batches: int = 0

    def begin(self) -> float:
        """The query is started (anew): how long its batches should last, so that batch and pause fill the period."""
        self._trigger_s = self.batch_s - min(self.pause_s, self.batch_s / 10)
        self._batch_id, self._batches, self.off_s = None, 0, 0.0
        return self._trigger_s

    @property
    def is_off(self) -> bool:
        return self._batches >= SETTLED_BATCHES and abs(self.off_s) > self.batch_s * OFF_FRACTION

    @property
    def began(self) -> float | None:
        """When the present batch began; None before the first was seen."""
        return None if self._batch_id is None else self._began

    def saw(self, batch_id: int, began: float) -> None:
        """A batch began; the same batch may be shown again."""
        if self._batch_id is not None and batch_id == self._batch_id + 1:
            pause = max(0.0, began - self._began - self._trigger_s)
            self.pause_s = pause if not self.pause_s else self.pause_s + _SMOOTHING * (pause - self.pause_s)
        if batch_id != self._batch_id:
            self._batch_id, self._began = batch_id, began
            self._batches += 1
            half = self.batch_s / 2
            self.off_s = (began - self.anchor + half) % self.batch_s - half
