"""Findings by policy: each is counted, some are logged (Q12)."""

from collections import Counter

import structlog

REPORT_EVERY_S = 60.0
_SHOWN = 128

log = structlog.get_logger(__name__)


class Findings:
    """`counts` are the gateway's, which the metrics show. An event is logged the first time, then at most once per
    `REPORT_EVERY_S` with the number since: a flood of refusals does not flood the log."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._reported: dict[str, tuple[float, int]] = {}

    def note(self, event: str, client: str, now: float) -> None:
        """`event` is its name among the counters, `client` the client concerned."""
        self._counts[event] += 1
        at, before = self._reported.get(event, (float("-inf"), 0))
        if now - at >= REPORT_EVERY_S:
            self._reported[event] = (now, self._counts[event])
            log.warning(
                "policy finding",
                finding=event.removeprefix("policy_"),
                client=client[:_SHOWN],
                times=self._counts[event] - before,
            )
