"""The stream administration service: what clients ask of it, independent of HTTP (S1, S4)."""

from collections.abc import Callable, Sequence
from typing import Final

from feeds.brokering import status_of
from feeds.message import NUMBER_MAX, topic_of
from feeds.registry_records import AdministrativeRequest, Assignment, RegistryKey, Subscription
from gateway.errors import FeedConflict, FeedLimitReached
from gateway.feeds.answers import administrative_state, feed_assignment, feed_detail, feed_state, place
from gateway.feeds.follower import FeedFollower
from schemas.feed_api import (
    AdministrativeMessage,
    AdministrativeState,
    BrokeredPair,
    FeedAssignment,
    FeedDetail,
    FeedState,
    SubscriberRequest,
    SwitchRequest,
)
from schemas.feed_settings import FeedsSettings
from schemas.feed_words import Slot
from schemas.identity import new_message_id

_BY_BYTES: Final = 255


class FeedService:
    """Answers from what the follower has read, and writes to the topic; it keeps nothing itself. `timeout_s`: how long
    Kafka may take. `now` gives monotonic seconds, `clock` seconds since the epoch."""

    def __init__(
        self,
        follower: FeedFollower,
        settings: FeedsSettings,
        prefix: str,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._follower = follower
        self._table = follower.table
        self._settings = settings
        self._prefix = prefix
        self._now = now
        self._clock = clock
        self.events = follower.events

    @property
    def event_streams(self) -> int:
        """The most streams of events at a time."""
        return self._settings.event_streams

    def feeds(self) -> list[str]:
        return self._table.feeds()

    def knows(self, feed: str) -> bool:
        return self._table.knows(feed)

    def state(self, feed: str) -> FeedState:
        """The present state. Takes a moment if there are many subscribers."""
        return self.states([feed])[0]

    def states(self, feeds: Sequence[str]) -> list[FeedState]:
        now, registry = self._now(), self._table.registry
        counts = self._table.subscribers(now)
        return [feed_state(self._table, feed, status_of(registry, feed, now), counts[feed], now) for feed in feeds]

    def detail(self, feed: str) -> FeedDetail:
        return feed_detail(self._table, feed, self._now())

    async def subscribe(self, feed: str, request: SubscriberRequest, identity: str) -> BrokeredPair:
        """Registers a subscriber, or renews it; returns once that is stored. Raises FeedConflict if another identity
        has the name, FeedLimitReached, BusError."""
        now = self._now()
        key = RegistryKey("subscriber", feed, request.subscriber)
        self._check_owner(feed, request.subscriber, identity)
        if not self._is_live(key, now) and self._subscribers(key, now) >= self._settings.subscribers:
            raise FeedLimitReached(
                f"{self._settings.subscribers} subscribers of feeds are known, and no more are allowed: unsubscribe "
                "those that have ended, or raise feeds.subscribers"
            )
        ttl_s = self._settings.subscriber_ttl_s
        record = Subscription(mode=request.mode, identity=_cut(identity), ttl_s=ttl_s, at_us=self._now_us())
        await self._follower.write(key, record)
        status = status_of(self._table.registry, feed, self._now())
        return BrokeredPair(
            feed=feed,
            topic=topic_of(self._prefix, feed),
            partitions=self._settings.partitions,
            prefix=self._prefix,
            active=place(status.active),
            backup=place(status.backup),
            revision=status.revision,
            mode=request.mode,
            ttl_s=ttl_s,
            reason=status.reason,
        )

    async def unsubscribe(self, feed: str, name: str, identity: str) -> bool:
        """Whether there was such a subscriber. Raises FeedConflict, BusError."""
        if self._table.registry.subscriber(feed, name) is None:
            return False
        self._check_owner(feed, name, identity)
        await self._follower.write(RegistryKey("subscriber", feed, name), None)
        return True

    async def switch(self, feed: str, request: SwitchRequest, identity: str) -> FeedAssignment:
        """Makes a slot the active stream; returns once the topic says that this switch counts. If it already is, the
        present assignment. Raises FeedConflict if another switch came first, or nobody writes to the slot; BusError."""
        registry, slot = self._table.registry, request.active
        present = registry.assignment(feed)
        revision = 0 if present is None else present.revision
        if present is not None and present.active == slot:
            return self._assignment(feed)
        self._check_switch(feed, slot, revision)
        record = Assignment(
            active=slot, revision=revision + 1, reason=request.reason, by=_cut(identity), at_us=self._now_us()
        )
        offset = await self._follower.write(RegistryKey("assignment", feed), record)
        if not await self._follower.decided(offset):
            raise FeedConflict(
                "switched_meanwhile", f"another switch of the feed {feed} came first: read its state, and switch again"
            )
        return FeedAssignment(
            active=slot, revision=record.revision, reason=record.reason, by=record.by, at_us=record.at_us
        )

    async def administrative(self, feed: str, message: AdministrativeMessage, identity: str) -> AdministrativeState:
        """Asks the active adapter for an administrative message; returns once the request is stored. Raises
        FeedLimitReached, BusError."""
        if self._table.requests + len(self._follower.unread("request")) >= self._settings.requests:
            raise FeedLimitReached(
                f"{self._settings.requests} administrative messages are remembered, and no more are allowed: try again "
                f"later; each is forgotten {self._settings.request_kept_s:g} s after its result"
            )
        payload = message.payload_base64 if message.payload is None else message.payload.encode()
        name = new_message_id()
        record = AdministrativeRequest(
            stream=message.stream, payload=payload or b"", lead=message.lead, by=_cut(identity), at_us=self._now_us()
        )
        await self._follower.write(RegistryKey("request", feed, name), record)
        return AdministrativeState(id=name, outcome="pending")

    def administrative_state(self, feed: str, name: str) -> AdministrativeState | None:
        """None if there is no such request, or its records are removed."""
        found = self._table.exchange(feed, name)
        return None if found is None else administrative_state(name, found.request, found.result)

    def _assignment(self, feed: str) -> FeedAssignment:
        registry = self._table.registry
        return feed_assignment(status_of(registry, feed, self._now()), registry.assignment(feed))

    def _check_switch(self, feed: str, slot: Slot, revision: int) -> None:
        if self._table.registry.holder(feed, slot, self._now()) is None:
            raise FeedConflict(
                "slot_not_written",
                f"no adapter that is alive writes the {slot} stream of {feed}: start one before you switch",
            )
        if revision >= NUMBER_MAX:
            raise FeedConflict(
                "no_revision_left",
                f"the assignment of {feed} has the highest revision: remove its record from the topic",
            )

    def _subscribers(self, key: RegistryKey, now: float) -> int:
        """How many there are besides this one: those that the table has, and those on their way to it."""
        coming = sum(1 for one in self._follower.unread("subscriber") if one != key and not self._is_live(one, now))
        return self._table.subscribers(now).total() + coming

    def _is_live(self, key: RegistryKey, now: float) -> bool:
        """Whether the table has this subscriber, and it has not lapsed."""
        known = self._table.registry.subscriber(key.feed, key.name)
        return known is not None and known.heard_at is not None and now - known.heard_at <= known.record.ttl_s

    def _check_owner(self, feed: str, name: str, identity: str) -> None:
        known = self._table.registry.subscriber(feed, name)
        if known is None or known.record.identity in ("", _cut(identity)):
            return
        if known.heard_at is None or self._now() - known.heard_at <= known.record.ttl_s:
            raise FeedConflict("subscriber_of_another", f"the subscriber {name} is another client's: use another name")

    def _now_us(self) -> int:
        return int(self._clock() * 1e6)


def _cut(identity: str) -> str:
    """An identity as far as a record takes it."""
    return identity.encode()[:_BY_BYTES].decode(errors="ignore")
