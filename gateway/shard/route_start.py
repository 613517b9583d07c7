"""From when on a subscription of a shard gets messages: its route is in use, or the shard reads `ingress` itself."""

import asyncio
from collections.abc import Callable, Mapping

from gateway.broker_clock import BrokerClock
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.routes import ShardRoutes
from schemas.identity import route_key


class RouteStart:
    """Brings routes of one shard into use and gives them up. `stored_to` are the offsets of `ingress`, by partition, up
    to which this gateway has acknowledged publishes; `clock` gives seconds since the epoch."""

    def __init__(
        self,
        routes: ShardRoutes,
        catch_up: IngressCatchUpReader,
        stored_to: Mapping[int, int],
        clock: Callable[[], float],
        broker_clock: BrokerClock,
    ) -> None:
        self._routes = routes
        self._catch_up = catch_up
        self._stored_to = stored_to
        self._clock = clock
        self._broker_clock = broker_clock

    async def use(self, topic_filter: str) -> tuple[int, dict[int, int]]:
        """Since when the filter's route is in effect, and from where on messages on `ingress` are for it: not what this
        gateway has acknowledged before (anywhere where it has acknowledged nothing), nor what the catch-up reader has
        got already; that is for the subscriptions that were there before."""
        routes, catch_up, key = self._routes, self._catch_up, route_key(topic_filter)
        begun = routes.effective_ms(key)
        now_ms = self._broker_clock.ms(asyncio.get_running_loop().time())
        start, published = {}, dict(self._stored_to)
        if begun is None or catch_up.is_needed(begun, now_ms):
            catch_up.hold_until(now_ms + routes.lead_ms if begun is None else begun)
            start = await catch_up.begin()
        elif catch_up.is_reading:  # it is needed by others
            start = await catch_up.begin()
        route = await routes.use(key)
        if start:
            catch_up.hold_until(route.effective_ms)
        return route.effective_ms, published | {p: max(at, published.get(p, 0)) for p, at in start.items()}

    def unpassed(self, start: dict[int, int]) -> dict[int, int]:
        """`start`, but for what the catch-up reader has passed since `use`."""
        return start | self._catch_up.unpassed(start)

    def leave(self, topic_filter: str) -> None:
        """A subscription needs the route no more."""
        self._routes.leave(route_key(topic_filter), self._clock())

    def recount(self, topic_filter: str) -> None:
        """A subscription that was found in the session log needs it."""
        self._routes.recount(route_key(topic_filter))
