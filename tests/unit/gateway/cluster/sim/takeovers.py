"""A shard whose owner is lost is claimed soon, as long as somebody is well who may claim it (Q6, Q7)."""

from typing import Any

from tests.unit.gateway.cluster.sim.world import Violation

KILLED_S = 0.55
"""Of a killed process all know at once: its machine refuses connections. That must not take as long as its silence."""

SILENT_S = 1.6
"""Of a stopped process, or one that is cut off, its silence tells. So it does of a killed one if somebody has dialled
it just before, in vain, and waits for the answer."""

CALM_S = 1.0


class Takeovers:
    """Of the site `site`, whose log says who owns a shard."""

    def __init__(self, site: Any) -> None:
        self._site = site
        self._world = site.world
        self._claimed_at: dict[int, float] = {}

    def claiming(self, shard: int) -> None:
        """Somebody claims the shard."""
        self._claimed_at[shard] = self._world.now

    def lost(self, process: Any) -> None:
        """A process was killed, was stopped, or is cut off from the log."""
        since = self._world.now
        others = [other for other in self._site.others(process) if self._is_able(other, since)]
        is_dialled = any(process.me.name in other.redialling for other in others)
        within_s = KILLED_S if process.is_over and not is_dialled else SILENT_S
        for shard in range(self._site.shards):
            lease = self._site.lease(shard)
            is_calm = self._claimed_at.get(shard, 0.0) < since - CALM_S
            if lease.owner == process.me and lease.is_fenced and is_calm and others:
                look = lambda shard=shard: self._look(process, shard, since, others)  # noqa: E731
                self._world.after(within_s, look)

    def _is_able(self, other: Any, since: float) -> bool:
        return other.is_well and other.state == "up" and other.lagged_at < since - CALM_S and not other.is_held

    def _look(self, process: Any, shard: int, since: float, others: list[Any]) -> None:
        is_back = process.reads_log or process.well_since > since  # also if it was killed again just now
        if is_back or self._site.lease(shard).owner != process.me or self._claimed_at.get(shard, 0.0) >= since:
            return
        if any(self._is_able(other, since) for other in others):
            raise Violation(f"nobody claims shard {shard} of {process.me}, which was lost at {since:.3f} s")
