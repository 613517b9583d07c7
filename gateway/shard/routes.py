"""What a home wants to hear of: its route keys on the topic `routes`, and since when each is effective.

A key is added when the first subscription needs it and dropped some time after the last one is gone, so that a client
that comes back finds its route in effect.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from gateway.bus import Bus, OnDone, Record
from gateway.errors import BusError
from schemas.events import RouteEvent, decode, encode

ROUTE_LINGER_S = 60.0

log = structlog.get_logger(__name__)


class Route(msgspec.Struct):
    """`effective_ms`: messages appended from then on are routed by this key; `unused_since` when the last user went."""

    effective_ms: int
    users: int = 0
    unused_since: float | None = None


class RouteInterest:
    """The routes of this home's shards, as a fold over `routes`, and the events that change them."""

    def __init__(self, bus: Bus, topic: str, lead_ms: int) -> None:
        self._bus = bus
        self._topic = topic
        self.lead_ms = lead_ms
        self._open: dict[tuple[int, str], Route] = {}
        self._adding: dict[tuple[int, str], asyncio.Future[Route]] = {}

    def __len__(self) -> int:
        """Routes that are open, those that linger included."""
        return len(self._open)

    def recover(self, record: Record) -> None:
        """Folds one record of the topic, in the order of its offsets."""
        raw = record.value()
        if raw is None:
            return
        event = decode(RouteEvent, raw)
        place = (event.shard, event.route_key)
        if event.op == "add":
            self._open.setdefault(place, Route(record.timestamp()[1] + self.lead_ms))
        elif event.op == "drop":
            self._open.pop(place, None)

    def begin(self, now: float) -> None:
        """After recovery: routes nobody uses begin to linger."""
        for route in self._open.values():
            if not route.users:
                route.unused_since = now

    def effective_ms(self, shard: int, key: str) -> int | None:
        """Since when a route is in effect, or will be; None if there is none."""
        route = self._open.get((shard, key))
        return None if route is None else route.effective_ms

    def is_in_effect(self, shard: int, keys: list[str], at_ms: int) -> bool:
        """Whether routers send a shard what is appended at `at_ms` and has these candidate keys."""
        routes = (self._open.get((shard, key)) for key in keys)
        return any(route is not None and route.effective_ms <= at_ms for route in routes)

    async def use(self, shard: int, key: str) -> Route:
        """Counts a user of a route, adding it first if need be; returns once the event is stored.

        Raises BusError if Kafka refuses the event.
        """
        place = (shard, key)
        route = self._open.get(place)
        if route is None:
            adding = self._adding.get(place)
            if adding is None:
                adding = self._adding[place] = self._add(place)
            route = await asyncio.shield(adding)
        route.users += 1
        route.unused_since = None
        return route

    def recount(self, shard: int, key: str) -> None:
        """Counts a user found in the session log."""
        route = self._open.get((shard, key))
        if route is not None:
            route.users += 1

    def leave(self, shard: int, key: str, now: float) -> None:
        """A user is gone."""
        route = self._open.get((shard, key))
        if route is not None:
            route.users -= 1
            if not route.users:
                route.unused_since = now

    def drop_unused(self, now: float) -> None:
        """Publishes the end of routes that nobody has used for ROUTE_LINGER_S."""
        for (shard, key), route in list(self._open.items()):
            if not route.users and route.unused_since is None:  # whoever wanted it did not wait for it
                route.unused_since = now
            elif route.unused_since is not None and now - route.unused_since > ROUTE_LINGER_S:
                del self._open[shard, key]
                self._publish(RouteEvent(op="drop", shard=shard, route_key=key), _note_drop)

    def _add(self, place: tuple[int, str]) -> asyncio.Future[Route]:
        """Publishes a route; it is open from when that is stored, whether or not its users still wait for it."""
        shard, key = place
        adding: asyncio.Future[Route] = asyncio.get_running_loop().create_future()

        def done(error: Any, record: Record) -> None:
            del self._adding[place]
            if error is not None:
                adding.set_exception(BusError(f"cannot publish the route {key!r}: {error.str()}"))
                adding.exception()  # there may be nobody left to look at it
                return
            route = self._open[place] = Route(record.timestamp()[1] + self.lead_ms)
            adding.set_result(route)

        self._publish(RouteEvent(op="add", shard=shard, route_key=key), done)
        return adding

    def _publish(self, event: RouteEvent, done: OnDone) -> None:
        self._bus.produce(self._topic, 0, event.kafka_key.encode(), encode(event), None, done)


def _note_drop(error: Any, _record: Record) -> None:
    if error is not None:  # the route stays: more work for the router, nothing wrong
        log.warning("cannot drop a route", reason=error.str())
