"""What one shard wants to hear of: its route keys on the topic `routes`, and since when each is effective.

A key is added when the first subscription needs it and dropped some time after the last one is gone, so that a client
that comes back finds its route in effect.

**Drops of an earlier owner.** Only the owner of the shard drops routes. But a drop may be on its way when the shard is
lost, and Kafka may store it after the next owner has read the topic. So owners read on, and undo a drop that is not
their own of a route that they use (`mend`), by an `add`. Routers end a route two leads after its drop, and an `add`
takes effect after one. So if the owner adds the route within a lead of the drop, the route has never ended, and its
subscriptions need nothing else. A home that starts does the same about routes that its sessions use (`begin`).
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from gateway.bus import Bus, OnDone
from gateway.errors import BusError
from gateway.record import Record
from gateway.shard.known_routes import Dropped
from schemas.events import RouteEvent, encode

ROUTE_LINGER_S = 60.0

log = structlog.get_logger(__name__)


class Route(msgspec.Struct):
    """`effective_ms`: messages appended from then on are routed by this key; `unused_since` when the last user went.
    `offset`: where on the topic its `add` stands, -1 if that was read at the start."""

    effective_ms: int
    users: int = 0
    unused_since: float | None = None
    offset: int = -1


class ShardRoutes:
    """The routes of one shard, and the events that change them. What the topic says of them is `recover`ed."""

    def __init__(self, bus: Bus, topic: str, shard: int, lead_ms: int) -> None:
        self._bus = bus
        self._topic = topic
        self._shard = shard
        self.lead_ms = lead_ms
        self._open: dict[str, Route] = {}
        self._adding: dict[str, asyncio.Future[Route]] = {}
        self._mending: set[str] = set()
        self._used: Counter[str] = Counter()  # by sessions that were found, though the topic has no such route
        self._dropped: Mapping[str, Dropped] = {}

    def __len__(self) -> int:
        """Routes that are open, those that linger included."""
        return len(self._open)

    def recover(self, since: Mapping[str, int], dropped: Mapping[str, Dropped]) -> None:
        """Takes what the topic says is open, with the times when it was added, ms since the epoch, and what is
        `dropped` (:meth:`gateway.shard.known_routes.KnownRoutes.dropped`)."""
        self._open = {key: Route(appended_ms + self.lead_ms) for key, appended_ms in since.items()}
        self._dropped = dict(dropped)

    def begin(self, now: float) -> None:
        """After recovery: routes nobody uses begin to linger; those that sessions use, and that were dropped, are added
        again."""
        for key, users in self._used.items():
            before = self._dropped.get(key)
            if before is None:
                log.warning("a route in use is missing: messages may have been missed", shard=self._shard, key=key)
            self._open[key] = Route(0 if before is None else before.added_ms + self.lead_ms, users)
            self._add_again(key, None if before is None else before.dropped_ms)
        self._used.clear()
        self._dropped = {}
        for route in self._open.values():
            if not route.users:
                route.unused_since = now

    def mend(self, dropped: Mapping[str, Dropped]) -> None:
        """Adds routes again that are open here and that an earlier owner has `dropped`. To be called several times
        within a lead."""
        for key, drop in dropped.items():
            route = self._open.get(key)
            if route is not None and route.offset < drop.offset and key not in self._mending:
                log.warning("a route in use was dropped by an earlier owner: it is added again", shard=self._shard)
                self._add_again(key, drop.dropped_ms)

    def effective_ms(self, key: str) -> int | None:
        """Since when a route is in effect, or will be; None if there is none."""
        route = self._open.get(key)
        return None if route is None else route.effective_ms

    def is_in_effect(self, keys: list[str], at_ms: int) -> bool:
        """Whether routers send the shard what is appended at `at_ms` and has these candidate keys."""
        routes = (self._open.get(key) for key in keys)
        return any(route is not None and route.effective_ms <= at_ms for route in routes)

    async def use(self, key: str) -> Route:
        """Counts a user of a route, adding it first if need be; returns once the event is stored.

        Raises BusError if Kafka refuses the event.
        """
        route = self._open.get(key)
        if route is None:
            adding = self._adding.get(key)
            if adding is None:
                adding = self._adding[key] = self._add(key)
            route = await asyncio.shield(adding)
        route.users += 1
        route.unused_since = None
        return route

    def recount(self, key: str) -> None:
        """Counts a user found in the session log."""
        route = self._open.get(key)
        if route is not None:
            route.users += 1
        else:
            self._used[key] += 1

    def leave(self, key: str, now: float) -> None:
        """A user is gone."""
        route = self._open.get(key)
        if route is not None:
            route.users -= 1
            if not route.users:
                route.unused_since = now

    def are_unused(self, now: float) -> bool:
        """Whether nobody has used some routes for ROUTE_LINGER_S."""
        for route in self._open.values():
            if not route.users and route.unused_since is None:  # whoever wanted it did not wait for it
                route.unused_since = now
        return bool(self._unused(now))

    def drop_unused(self, now: float) -> None:
        """Publishes the end of those routes. Only the owner of the shard may, who knows of all their users: another
        gateway's clients would get nothing more."""
        for key in self._unused(now):
            del self._open[key]
            self._publish(RouteEvent(op="drop", shard=self._shard, route_key=key), _note_drop)

    def _unused(self, now: float) -> list[str]:
        return [
            key
            for key, route in self._open.items()
            if route.unused_since is not None and now - route.unused_since > ROUTE_LINGER_S
        ]

    def _add(self, key: str) -> asyncio.Future[Route]:
        """Publishes a route; it is open from when that is stored, whether or not its users still wait for it."""
        adding: asyncio.Future[Route] = asyncio.get_running_loop().create_future()

        def done(error: Any, record: Record) -> None:
            del self._adding[key]
            if error is not None:
                adding.set_exception(BusError(f"cannot publish the route {key!r}: {error.str()}"))
                adding.exception()  # there may be nobody left to look at it
                return
            route = self._open[key] = Route(record.timestamp()[1] + self.lead_ms, offset=record.offset())
            adding.set_result(route)

        self._publish(RouteEvent(op="add", shard=self._shard, route_key=key), done)
        return adding

    def _add_again(self, key: str, dropped_ms: int | None) -> None:
        """Undoes the drop of a route in use."""
        self._mending.add(key)

        def done(error: Any, record: Record) -> None:
            self._mending.discard(key)
            if error is not None:
                log.warning("cannot add a route again", shard=self._shard, reason=error.str())
                return
            route, appended_ms = self._open.get(key), record.timestamp()[1]
            if route is None:  # it was dropped here, behind this
                return
            route.offset = record.offset()
            if dropped_ms is None or appended_ms >= dropped_ms + self.lead_ms:
                route.effective_ms = appended_ms + self.lead_ms

        self._publish(RouteEvent(op="add", shard=self._shard, route_key=key), done)

    def _publish(self, event: RouteEvent, done: OnDone) -> None:
        self._bus.produce(self._topic, 0, event.kafka_key.encode(), encode(event), None, done)


def _note_drop(error: Any, _record: Record) -> None:
    if error is not None:  # the route stays: more work for the router, nothing wrong
        log.warning("cannot drop a route", reason=error.str())
