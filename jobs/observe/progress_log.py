"""Log lines about streaming queries: each batch at debug level, sums of them, and what needs attention."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.settings import LogSettings

log = structlog.get_logger(__name__)


@dataclass
class _Sum:
    """The batches that ended after `since`, seconds since the epoch."""

    since: float
    batches: int = 0
    rows: int = 0
    longest_ms: int = 0


@dataclass
class _QueryLog:
    """Per query: what has not been summed up in a line yet, whether a batch of this run has ended, whether it had
    failed, and the lag last logged."""

    sum: _Sum
    is_warm: bool = False
    has_failed: bool = False
    lag_logged: int = 0


class ProgressLog:
    """Logs when a query starts and recovers, when a batch is slow, when a lag grows, and every `progress_every_s` what
    a query has done since, unless it was idle. Failures are logged by whoever restarts the query. `clock` gives seconds
    since the epoch.

    A batch is slow if it takes longer than `slow_batch_triggers` of its query's triggers, except the first of a run,
    when everything is cold. A lag is logged from `lag_records` on, whenever it has doubled, and when it is below again.
    """

    def __init__(self, settings: LogSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._triggers: Mapping[str, float] = {}
        self._queries: dict[str, _QueryLog] = {}

    def expect(self, triggers: Mapping[str, float]) -> None:
        """Queries by name with their triggers in seconds."""
        self._triggers = triggers

    def begun(self, query: str) -> None:
        self._of(query).is_warm = False
        log.info("query started", query=query)

    def progressed(self, query: str, measured: Mapping[str, Any]) -> None:
        shown = ("batch_id", "batch_ms", "steps_ms", "input_rows", "rows_per_s", "lags", "state")
        log.debug("batch ended", query=query, **{name: measured[name] for name in shown})
        self._runs(query)
        self._sum_up(query, measured)
        self._note_duration(query, measured)
        self._note_lag(query, measured)

    def rested(self, query: str, _topics: Mapping[str, Any]) -> None:
        self._runs(query)

    def failed(self, query: str, _error: str) -> None:
        self._of(query).has_failed = True

    def _of(self, query: str) -> _QueryLog:
        if query not in self._queries:
            self._queries[query] = _QueryLog(_Sum(self._clock()))
        return self._queries[query]

    def _runs(self, query: str) -> None:
        logged = self._of(query)
        if logged.has_failed:
            logged.has_failed = False
            log.info("query recovered", query=query)

    def _sum_up(self, query: str, measured: Mapping[str, Any]) -> None:
        logged, now = self._of(query), self._clock()
        so_far = logged.sum
        so_far.batches += 1
        so_far.rows += measured["input_rows"]
        so_far.longest_ms = max(so_far.longest_ms, measured["batch_ms"])
        took_s = now - so_far.since
        if not self._settings.progress_every_s or took_s < self._settings.progress_every_s:
            return
        logged.sum = _Sum(now)
        if so_far.rows:
            log.info(
                "query progress",
                query=query,
                over_s=round(took_s, 1),
                batches=so_far.batches,
                longest_batch_ms=so_far.longest_ms,
                rows=so_far.rows,
                rows_per_s=round(so_far.rows / took_s, 1),
                lag=measured["lag"],
                state=measured["state"],
            )

    def _note_duration(self, query: str, measured: Mapping[str, Any]) -> None:
        logged, trigger_s = self._of(query), self._triggers.get(query)
        took_s = measured["batch_ms"] / 1000
        if logged.is_warm and trigger_s is not None and took_s > trigger_s * self._settings.slow_batch_triggers:
            longest = max(measured["steps_ms"], key=lambda step: _duration(step, measured), default="")
            log.warning(
                "slow batch",
                query=query,
                batch_id=measured["batch_id"],
                took_s=round(took_s, 1),
                trigger_s=trigger_s,
                rows=measured["input_rows"],
                longest_step=longest,
            )
        logged.is_warm = True

    def _note_lag(self, query: str, measured: Mapping[str, Any]) -> None:
        logged, lag = self._of(query), measured["lag"]
        if lag is None:
            return
        if lag >= max(self._settings.lag_records, 2 * logged.lag_logged):
            logged.lag_logged = lag
            log.warning("query lags", query=query, records=lag, by_topic=measured["lags"])
        elif logged.lag_logged and lag < self._settings.lag_records:
            logged.lag_logged = 0
            log.info("query caught up", query=query, records=lag)


def _duration(step: str, measured: Mapping[str, Any]) -> float:
    """Duration of a step; 0 for the total."""
    return 0 if step == "triggerExecution" else float(measured["steps_ms"][step])
