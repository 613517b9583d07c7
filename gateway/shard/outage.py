"""What is known of a shard's spool that fails: since when, why, when to try again, how much waits meanwhile."""

import asyncio

import structlog

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0

log = structlog.get_logger(__name__)


class SpoolOutage:
    """Of what was tried (`write`, `mend`, `finished`, or the backlog of a session) what fails at present.

    `reason` is the latest error, "" while all is well, for whoever asks whether the gateway is well; `is_full` while so
    much waits in memory for the spool that no more is to be read from Kafka. Failing and mending are logged once each,
    not at each try.
    """

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._failing: dict[str, float] = {}
        self._due = 0.0
        self._pause_s = 0.0
        self.reason = ""
        self.is_full = False

    def failed(self, what: str, error: Exception) -> None:
        self.reason, now = str(error), _now()
        if what == "write":
            self._pause_s = min(self._pause_s * 2 or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            self._due = now + self._pause_s
        if not self._failing:
            log.error(
                "the spool failed; retrying, online clients are not affected", shard=self._shard, reason=self.reason
            )
        self._failing.setdefault(what, now)

    def mended(self, what: str) -> None:
        since = self._failing.pop(what, None)
        if what == "write":
            self._due = self._pause_s = 0.0
            self.is_full = False
        if since is not None and not self._failing:
            self.reason = ""
            log.info("the spool works again", shard=self._shard, after_s=round(_now() - since, 1))

    @property
    def is_writing(self) -> bool:
        """Whether commits succeed."""
        return "write" not in self._failing

    def may_write(self) -> bool:
        """Whether it is time for a commit: at once, but for a pause behind one that failed."""
        return _now() >= self._due


class Unspooled:
    """How much waits in memory for spools that cannot be written, of all shards of this process."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, int]] = {}

    def note(self, shard: int, messages: int, n_bytes: int) -> None:
        """What waits in a shard now."""
        if messages or n_bytes:
            self._waiting[shard] = (messages, n_bytes)
        else:
            self._waiting.pop(shard, None)

    def reaches(self, messages: int, n_bytes: int) -> bool:
        """Whether as much or more waits in all."""
        waiting = self._waiting.values()
        return sum(n for n, _ in waiting) >= messages or sum(size for _, size in waiting) >= n_bytes


def _now() -> float:
    """Not the wall clock, which may be set back."""
    return asyncio.get_running_loop().time()
