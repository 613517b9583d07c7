"""Keeping two routers half a batch apart: pure arithmetic on when batches start and how long they take."""

from dataclasses import dataclass

OFF_FRACTION = 1 / 6
"""How much of a period a router may drift before it is realigned. The peer's pause is half a period away; on a busy
machine it lasts a fifth of a period, and the next batch may drift as much again."""

SETTLED_BATCHES = 1
"""A router is not realigned again before it has run this many batches: realigning causes a pause too."""

PATIENT_BATCHES, MOST_PATIENT_BATCHES = 2, 32
"""The same for a router that keeps to the clock: with fewer batches it cannot measure its pause. The number doubles
each time realigning did not help, so that a machine with varying start times is not kept busy with restarts."""

_SMOOTHING = 0.3


def next_start(now: float, period_s: float, anchor: float) -> float:
    """The next moment after `now` (seconds since the epoch) at which a batch in phase with `anchor` starts."""
    return now + (anchor - now) % period_s


@dataclass
class Phase:
    """When a query's batches start, and how long a batch takes with the pause after it (`period_s`); all in seconds.

    `batch_s` is how long a batch should last. `began` is when the current batch started; for a query's first batch, as
    if its pause were the usual one; None before records flow. A `patient` query keeps to the clock rather than to a
    peer. It learns how long it takes to start: `lead_s`, by which it must be started before its moment.
    """

    batch_s: float
    patient: bool = False
    lead_s: float = 0.0
    period_s: float = 0.0
    pause_s: float = 0.0
    began: float | None = None
    _trigger_s: float = 0.0
    _batch_id: int | None = None
    _batches: int = 0
    _settled: int = 0
    _learns: bool = False

    def __post_init__(self) -> None:
        self.period_s = self.batch_s

    def begin(self, period_s: float, realigned: bool = False) -> float:
        """The query is started or restarted. Returns how long its batches should last so that batch and pause fill
        `period_s`."""
        self._trigger_s = period_s - min(self.pause_s, self.batch_s / 10)
        if not self.patient:
            self._settled = SETTLED_BATCHES if realigned else 0
        elif not realigned or self._batches > 2 * self._settled:
            self._settled = PATIENT_BATCHES
        else:
            self._settled = min(2 * self._settled, MOST_PATIENT_BATCHES)
        self._learns = self.patient and realigned
        self._batch_id, self._batches, self.began = None, 0, None
        return self._trigger_s

    def flows(self, now: float) -> None:
        """The records of the first batch have begun to flow: from now on it lasts as long as any other."""
        if self.began is None:
            self.began = now - self.pause_s

    def ended(self, batch_id: int, began: float, lasted_s: float) -> float | None:
        """A batch that started at `began` has ended, and the next has started. Returns the length of the pause between
        them; None for a query's first batch, which is no measure, and for a batch already reported."""
        if batch_id == self._batch_id:
            return None
        pause = max(0.0, lasted_s - self._trigger_s)
        # The very first batch is no measure: everything is cold.
        is_measure = self._batches > 0
        if is_measure:
            self.pause_s += _SMOOTHING * (pause - self.pause_s) if self.pause_s else pause
            self.period_s = self._trigger_s + self.pause_s
        self._batch_id, self.began = batch_id, began + lasted_s
        self._batches += 1
        return pause if is_measure else None

    def off_s(self, anchor: float, period_s: float) -> float:
        """How late batches start, measured against `anchor` plus multiples of `period_s`; negative if early; 0 if
        unknown."""
        if self.began is None:
            return 0.0
        return (self.began - anchor + period_s / 2) % period_s - period_s / 2

    def learn(self, anchor: float, period_s: float) -> None:
        """After a realigned query's first batch, note how late the second starts: the next start will be that much
        earlier."""
        if self._learns and self._batches == 1:
            self._learns = False
            self.lead_s = min(max(0.0, self.lead_s + self.off_s(anchor, period_s)), period_s / 2)

    def is_off(self, anchor: float, period_s: float) -> bool:
        """Whether it is time to realign."""
        return self._batches >= self._settled and abs(self.off_s(anchor, period_s)) > period_s * OFF_FRACTION

    def is_in_the_way(self, anchor: float, other: "Phase", period_s: float) -> bool:
        """Whether this query and the `other`, whose moment is half a period away, pause at the same time, and this one
        is further from its moment. Meanwhile neither covers the other, so one must move at once, however often that was
        tried."""
        if self.began is None or other.began is None or self._batches < PATIENT_BATCHES:
            return False
        meet = abs(self.off_s(other.began, period_s)) < period_s * OFF_FRACTION
        return meet and abs(self.off_s(anchor, period_s)) > abs(other.off_s(anchor + period_s / 2, period_s))
