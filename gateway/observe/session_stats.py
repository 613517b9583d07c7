"""Statistics of sessions and their queues, gathered on the event loop, a slice at a time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

from gateway.shard.session import Session
from gateway.shard.shard import Shard

SLICE = 500
"""Sessions counted before other work gets a turn: about half a millisecond."""

FRESH_S = 1.0
"""How long a result is reused."""


class SessionStats:
    """Statistics of all sessions. `clients` counts the connected ones by (bearer, protocol)."""

    def __init__(self) -> None:
        self.clients: Counter[tuple[str, str]] = Counter()
        self.connected = 0
        self.offline = 0
        self.share_groups = 0
        self.subscriptions = 0
        self.queued_messages = 0
        self.queued_bytes = 0
        self.largest_queue_messages = 0
        self.largest_queue_bytes = 0
        self.unacknowledged = 0

    @property
    def sessions(self) -> int:
        return self.connected + self.offline

    def add(self, sessions: Sequence[Session]) -> None:
        """Adds sessions, most of them idle. Share groups are not sessions, but messages wait for them too."""
        protocols = Counter([session.protocol for session in sessions if session.link is not None])
        for name, count in protocols.items():
            protocol, _, bearer = name.partition("+")
            self.clients[bearer or "tcp", protocol] += count
        connected = protocols.total()
        groups = sum([session.is_group for session in sessions])
        self.connected += connected
        self.offline += len(sessions) - connected - groups
        self.share_groups += groups
        self.subscriptions += sum([len(session.subscriptions) for session in sessions]) - groups
        self.unacknowledged += sum([session.unacknowledged for session in sessions])
        waiting = [session.queued for session in sessions]
        self.queued_messages += sum(waiting)
        self.largest_queue_messages = max(self.largest_queue_messages, *waiting)
        sizes = [session.queued_bytes for session in sessions]
        self.queued_bytes += sum(sizes)
        self.largest_queue_bytes = max(self.largest_queue_bytes, *sizes)


class SessionStatsCollector:
    """Gathers statistics on request, at most once a second; other requests get the last result. `shards` gives those
    that are here."""

    def __init__(self, shards: Callable[[], Sequence[Shard]]) -> None:
        self._shards = shards
        self._last = SessionStats()
        self._taken_at = float("-inf")
        self._lock = asyncio.Lock()

    async def take(self) -> SessionStats:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._taken_at >= FRESH_S:
                stats = SessionStats()
                async for sessions in slices(self._shards()):
                    stats.add(sessions)
                self._last, self._taken_at = stats, now
            return self._last


async def slices(shards: Sequence[Shard]) -> AsyncIterator[list[Session]]:
    """All sessions and share groups, SLICE at a time; the event loop does other work in between. Sessions that start
    meanwhile may be missing, and those that end meanwhile may be included."""
    for shard in shards:
        sessions = list(shard.sessions.values())
        for start in range(0, len(sessions), SLICE):
            yield sessions[start : start + SLICE]
            await asyncio.sleep(0)
