"""Writes this gateway's heartbeats to the topic `members` (G2, G14).

A heartbeat is left out while an earlier one is on its way: while Kafka is away they would pile up, and only the newest
says anything. A change of state is written at once in any case; there are few of them. The bus keeps the order.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from msgspec import UNSET, UnsetType

from gateway.bus import Bus
from schemas.events import encode
from schemas.member_settings import GatewayClusterSettings
from schemas.members import MOST_WARM, GatewayAddress, GatewayLoad, Heartbeat, MemberState

log = structlog.get_logger(__name__)


class HeartbeatWriter:
    """Owns what this gateway says about itself. Silent until `join`; `boot` is the number of this process, `load`
    measures it, `clock` gives seconds since the epoch; `warm` lists the shards that it could take over quickly, in
    order: of more than MOST_WARM each heartbeat names so many, and the next one those that follow. `starting` lists
    those whose start has made progress since it was called before, MOST_STARTING at most."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        name: str,
        boot: int,
        settings: GatewayClusterSettings,
        load: Callable[[], GatewayLoad],
        clock: Callable[[], float],
        counts: Counter[str],
        warm: Callable[[], Sequence[int]] = tuple,
        starting: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._starting = starting
        self._bus = bus
        self._topic = topic
        self._key = name.encode()
        self._boot = boot
        self._settings = settings
        self._load = load
        self._clock = clock
        self._counts = counts
        self._warm = warm
        self._last_warm = -1
        self._links: GatewayAddress | None = None
        self._loop = asyncio.get_running_loop()
        self._state: MemberState = "joining"
        self._addresses: dict[str, GatewayAddress] = {}
        self._relay: GatewayAddress | UnsetType = UNSET
        self._seq = 0
        self._on_way = 0
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None

    def join(self, links: GatewayAddress | None = None) -> None:
        """The gateway has started and will serve; heartbeats begin. `links`: where others make their links to it."""
        self._links = links
        self._write()
        self._wait()

    def serve(self, addresses: Mapping[str, GatewayAddress], relay: GatewayAddress | None = None) -> None:
        """The gateway serves clients at these addresses, by bearer, and takes those that other gateways relay at
        `relay`; None if it takes none."""
        self._addresses = dict(addresses)
        self._relay = UNSET if relay is None else relay
        self._enter("up" if self._state == "joining" else self._state)

    def drain(self) -> None:
        """The gateway gives up its shards, or is being stopped: no more clients should come, and no shards."""
        self._enter("draining")

    def leave(self) -> None:
        """The gateway ends; no heartbeat follows."""
        if self._timer is not None:
            self._timer.cancel()
        self._enter("gone")

    def _enter(self, state: MemberState) -> None:
        self._state = state
        self._write()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._settings.heartbeat_s, self._beat)

    def _beat(self) -> None:
        self._wait()
        if not self._on_way:
            self._write()

    def _write(self) -> None:
        record = Heartbeat(
            boot=self._boot,
            seq=self._seq,
            state=self._state,
            at_us=int(self._clock() * 1e6),
            zone=self._settings.zone,
            addresses=self._addresses,
            relay=self._relay,
            load=self._load(),
            warm=self._next_warm(),
            links=self._links,
            starting=list(self._starting()) or UNSET,
            shares=self._settings.enabled,
        )
        self._seq += 1
        self._on_way += 1
        self._bus.produce(self._topic, 0, self._key, encode(record), None, self._stored)

    def _next_warm(self) -> list[int]:
        """All that are warm, or those that are named in their turn."""
        warm = self._warm()
        if len(warm) <= MOST_WARM:
            return list(warm)
        first = bisect_right(warm, self._last_warm)
        named = [*warm[first:], *warm[:first]][:MOST_WARM]
        self._last_warm = named[-1]
        return named

    def _stored(self, error: Any, _record: Any) -> None:
        self._on_way -= 1
        if error is not None:
            self._counts["heartbeats_refused"] += 1
            if not self._is_refused:  # once, not at each of many heartbeats
                log.error("Kafka refused a heartbeat: clients are not sent to this gateway", reason=error.str())
        self._is_refused = error is not None
