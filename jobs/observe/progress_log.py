"""Lines in the log about streaming queries: each batch at debug level, and what somebody should know above it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.settings import LogSettings

log = structlog.get_logger(__name__)


@dataclass
class _Heard:
    """Of one query: whether a batch of this run has ended, whether it had failed, and the lag last told of."""

    is_warm: bool = False
    has_failed: bool = False
    lag_told: int = 0


class ProgressLog:
    """Says when a query has started and recovered, when a batch is slow, rows are late, or a lag grows. That a query
    has failed says whoever starts it again.

    A batch is slow if it takes longer than `slow_batch_triggers` of its query's triggers; the first of a run, where all
    is cold, is no measure. A lag is told of from `lag_records` on, whenever it has doubled, and when it is below again.
    """

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._triggers: Mapping[str, float] = {}
        self._heard: dict[str, _Heard] = {}

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
        self._note_duration(query, measured)
        self._note_lag(query, measured)

    def rested(self, query: str, _topics: Mapping[str, Any]) -> None:
        self._runs(query)

    def failed(self, query: str, _error: str) -> None:
        self._of(query).has_failed = True

    def _of(self, query: str) -> _Heard:
        return self._heard.setdefault(query, _Heard())

    def _runs(self, query: str) -> None:
        heard = self._of(query)
        if heard.has_failed:
            heard.has_failed = False
            log.info("query recovered", query=query)

    def _note_duration(self, query: str, measured: Mapping[str, Any]) -> None:
        heard, trigger_s = self._of(query), self._triggers.get(query)
        took_s = measured["batch_ms"] / 1000
        if heard.is_warm and trigger_s is not None and took_s > trigger_s * self._settings.slow_batch_triggers:
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
        heard.is_warm = True

    def _note_lag(self, query: str, measured: Mapping[str, Any]) -> None:
        heard, lag = self._of(query), measured["lag"]
        if lag is None:
            return
        if lag >= max(self._settings.lag_records, 2 * heard.lag_told):
            heard.lag_told = lag
            log.warning("query lags", query=query, records=lag, by_topic=measured["lags"])
        elif heard.lag_told and lag < self._settings.lag_records:
            heard.lag_told = 0
            log.info("query lags no longer", query=query, records=lag)


def _duration(step: str, measured: Mapping[str, Any]) -> float:
    """Of a step; that of all together is none."""
    return 0 if step == "triggerExecution" else float(measured["steps_ms"][step])
