"""Computes the topics below `$SYS/broker/` and sends them to their subscribers every `sys_interval_s`.

Names and meanings are those of mosquitto(8), "broker status", for tools that expect them; docs/protocol.md lists them.
All values are of this gateway since its start.
"""

import asyncio

from gateway.host.host_server import HostServer
from gateway.observe.load import Load
from gateway.observe.session_stats import SessionStats, SessionStatsCollector
from gateway.shard.home import Home
from gateway.shard.local_publishing import publish_locally
from gateway.shard.node import Node
from schemas.version import installed_version

_ROOT = "$SYS/broker/"
_DROPPED = "dropped"
"""The outcome of a delivery, see :class:`schemas.events.RecipientOutcome`."""


class SystemPublisher:
    """Publishes in `begin`, so that the topics exist, then in `run`."""

    def __init__(self, node: Node, home: Home, hosts: HostServer, stats: SessionStatsCollector) -> None:
        self._node = node
        self._home = home
        self._hosts = hosts
        self._collector = stats
        self._load = Load()
        self._loop = asyncio.get_running_loop()
        self._started = self._last = self._loop.time()
        self._maximum = 0

    def begin(self) -> None:
        """Stores the values that never change, and first values of the rest, without load averages."""
        now_ms = int(self._node.clock() * 1000)
        self._node.system.put({f"{_ROOT}version": f"waystation version {installed_version()}"}, now_ms)
        self._node.system.put(self._values(SessionStats(), {}), now_ms)

    async def run(self) -> None:
        """Publishes for ever."""
        interval_s = self._node.settings.gateway.sys_interval_s
        while True:
            await asyncio.sleep(interval_s)
            await self.publish()

    async def publish(self) -> None:
        """Publishes every value to every subscriber."""
        stats, now = await self._collector.take(), self._loop.time()
        averages = self._load.update(self._totals(), max(now - self._last, 1e-3))
        self._last = now
        loads = {f"{name}/{minutes}min": f"{average:.2f}" for (name, minutes), average in averages.items()}
        for message in self._node.system.put(self._values(stats, loads), int(self._node.clock() * 1000)):
            await publish_locally(self._home.states, message)

    def _totals(self) -> dict[str, int]:
        traffic, counts = self._hosts.traffic, self._hosts.counts
        return {
            "messages/received": traffic.packets_received,
            "messages/sent": traffic.packets_sent,
            "publish/received": sum(traffic.publishes_received),
            "publish/sent": sum(traffic.publishes_sent),
            "publish/dropped": self._node.counts[_DROPPED],
            "bytes/received": traffic.bytes_received,
            "bytes/sent": traffic.bytes_sent,
            "sockets": counts["connections_opened"],
            "connections": self._node.counts["presence_connected"],
        }

    def _values(self, stats: SessionStats, loads: dict[str, str]) -> dict[str, str]:
        self._maximum = max(self._maximum, stats.connected)
        traffic, node = self._hosts.traffic, self._node
        publishes = {
            "received": sum(traffic.publishes_received),
            "sent": sum(traffic.publishes_sent),
            "dropped": node.counts[_DROPPED],
        }
        figures = {
            "clients/connected": stats.connected,
            "clients/active": stats.connected,
            "clients/disconnected": stats.offline,
            "clients/inactive": stats.offline,
            "clients/total": stats.sessions,
            "clients/maximum": self._maximum,
            "messages/received": traffic.packets_received,
            "messages/sent": traffic.packets_sent,
            "bytes/received": traffic.bytes_received,
            "bytes/sent": traffic.bytes_sent,
            "subscriptions/count": stats.subscriptions,
            "retained messages/count": len(node.retained),
            "store/messages/count": stats.queued_messages,
            "store/messages/bytes": stats.queued_bytes,
            "messages/stored": stats.queued_messages,
            **{f"publish/messages/{name}": count for name, count in publishes.items()},
            **{f"messages/publish/{name}": count for name, count in publishes.items()},
        }
        values = {_ROOT + name: str(value) for name, value in figures.items()}
        values[f"{_ROOT}uptime"] = f"{int(self._loop.time() - self._started)} seconds"
        return values | {f"{_ROOT}load/{name}": load for name, load in loads.items()}
