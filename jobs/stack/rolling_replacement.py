"""Rolling replacement of one process: a candidate runs alongside it until it has caught up, then the old one stops
(R5)."""

from collections.abc import Callable
from enum import Enum

from jobs.stack.part import Part
from jobs.stack.process import ManagedProcess, how_it_ended


class Stage(Enum):
    """ALONGSIDE → LEAVING → OVER: first both run, then one of them is stopping."""

    ALONGSIDE = "alongside"
    LEAVING = "leaving"
    OVER = "over"


class RollingReplacement:
    """The replacement of one process by a candidate, which then runs as `part`; `error` says why it failed, if it did.

    Times are those of the supervisor's monotonic clock, except `started_at`, seconds since the epoch. The candidate
    lowers its priority as its part says, and after half of `timeout_s` only as far as any restarted part, so that it
    catches up on a busy machine too. Once caught up it runs at normal priority, and the old process stays for
    `settle_s`. The process that has to stop lowers its priority, is asked once, and is killed after `stop_timeout_s`;
    the replacement is over when none of it is left.
    """

    def __init__(
        self,
        part: Part,
        candidate: ManagedProcess,
        is_caught_up: Callable[[], bool],
        began: float,
        started_at: float,
        timeout_s: float,
        settle_s: float,
        stop_timeout_s: float,
    ) -> None:
        self.part = part
        self.candidate = candidate
        self.started_at = started_at
        self.other_started_at = started_at
        self.took_s = 0.0
        self.stage = Stage.ALONGSIDE
        self.leaving: ManagedProcess | None = None
        self.error: str | None = None
        self._began = began
        self._is_caught_up = is_caught_up
        self._timeout_s = timeout_s
        self._settle_s = settle_s
        self._stop_timeout_s = stop_timeout_s
        self._caught_up_at: float | None = None
        self._kill_at = 0.0
        self._reported = self.stage
        candidate.set_niceness(part.niceness_alongside)

    @property
    def other(self) -> ManagedProcess | None:
        """The process that runs besides the part's own: the candidate, later the one that leaves; None at the end."""
        return {Stage.ALONGSIDE: self.candidate, Stage.LEAVING: self.leaving, Stage.OVER: None}[self.stage]

    @property
    def is_over(self) -> bool:
        return self.stage is Stage.OVER

    def has_come(self, now: float) -> bool:
        """Check the candidate: True once, when it has been caught up for `settle_s` and can become the part by
        :meth:`let_go`."""
        if self.stage is not Stage.ALONGSIDE:
            return False
        if self.candidate.ended():
            self._give_up(f"the new process {how_it_ended(self.candidate.exit_code)}", now)
        elif self._caught_up_at is not None:
            return now - self._caught_up_at >= self._settle_s
        elif self._is_caught_up():
            self.took_s, self._caught_up_at = now - self._began, now
            self.candidate.set_niceness(0)
        elif now - self._began > self._timeout_s:
            self._give_up(f"the new process did not catch up within {self._timeout_s:g} s", now)
        elif now - self._began > self._timeout_s / 2:
            self.candidate.set_niceness(min(self.part.niceness, self.part.niceness_alongside))
        return False

    def let_go(self, process: ManagedProcess | None, started_at: float, now: float) -> None:
        """Make `process` stop: the old one, if there is one, when the candidate has become the part."""
        self.stage, self.leaving, self.other_started_at = Stage.LEAVING, process, started_at
        self._kill_at = now + self._stop_timeout_s
        if process is not None:
            process.set_niceness(self.part.niceness_alongside)
            process.ask_to_stop()

    def moved_on(self, now: float) -> bool:
        """Check the process that leaves: True once for each stage reached."""
        if self.stage is Stage.LEAVING:
            if self.leaving is None or self.leaving.ended():
                self.stage = Stage.OVER
            elif now > self._kill_at:
                self.leaving.kill()
        reached, self._reported = self.stage is not self._reported, self.stage
        return reached

    def _give_up(self, why: str, now: float) -> None:
        self.error = why
        self.let_go(self.candidate, self.started_at, now)
