"""Whether an adapter may write to its slot (S2): the rules of :mod:`feeds.registry`, from one adapter's view. Pure.

Before it claims a slot it listens for `timeout_s`, in which every adapter that is alive is heard. It does the same
after it was cut off from the topic, when all others seem dead, and after it stood still itself: it no longer knows who
holds what.
"""

from typing import Final, Literal, NamedTuple

from feeds.errors import FeedSettingsError
from feeds.pairing import FeedSource, Refused, decide
from feeds.registry import KnownAdapter, Registry
from feeds.registry_records import SLOTS
from schemas.feed_words import Slot

STANDBY_S: Final = 60.0
"""For how long an adapter that waits for the slot is remembered, longer than any pause of a process is likely to be."""


class Standing(NamedTuple):
    """`waiting`, `refused` with the reason, or `up`: it may write."""

    state: Literal["waiting", "refused", "up"]
    reason: str = ""


def other_slot(slot: Slot) -> Slot:
    """The slot of the other stream."""
    return SLOTS[1 - SLOTS.index(slot)]


class Holding:
    """The caller applies records to `registry` and calls :meth:`heard` when a beat of its own was read back."""

    def __init__(
        self, registry: Registry, feed: str, adapter: str, slot: Slot, source: FeedSource, timeout_s: float
    ) -> None:
        self._registry, self._feed, self._adapter, self._slot = registry, feed, adapter, slot
        self._source, self._timeout_s = source, timeout_s
        self._listens_until: float | None = None  # None: nothing was heard yet
        self._heard_at: float | None = None
        self.standing = Standing("waiting", "listening for other adapters")

    def heard(self, now: float) -> None:
        """A beat of this adapter was read back, so it hears what others say."""
        if self._heard_at is None or now - self._heard_at > self._timeout_s:
            self._listens_until = now + self._timeout_s
        self._heard_at = now

    def restart(self) -> None:
        """The adapter begins anew: it stood still, or could not go on."""
        self._heard_at = self._listens_until = None
        self.standing = Standing("waiting", "listening for other adapters")

    def has_standby(self, now: float) -> bool:
        """Whether another adapter may have taken the slot while this one stood still."""
        return any(
            one.name != self._adapter
            and one.beat.slot == self._slot
            and one.beat.state != "gone"
            and one.heard_at is not None
            and now - one.heard_at < STANDBY_S
            for one in self._registry.adapters(self._feed)
        )

    def is_deaf(self, now: float) -> bool:
        """Whether nothing of the topic reaches this adapter."""
        return self._heard_at is None or now - self._heard_at > self._timeout_s

    def decide(self, now: float) -> Standing:
        """Whether it may write now. Who is cut off keeps what it has."""
        if not self.is_deaf(now) and self._listens_until is not None and now >= self._listens_until:
            self.standing = self._decided(now)
        return self.standing

    def other(self, now: float) -> KnownAdapter | None:
        """The adapter that writes to the other slot."""
        return self._registry.holder(self._feed, other_slot(self._slot), now)

    def is_acting(self, now: float) -> bool:
        """Whether this adapter's stream is the active one: it is preferred, or the only one."""
        return self._registry.preferred(self._feed) == self._slot or self.other(now) is None

    def _decided(self, now: float) -> Standing:
        holder = self._registry.holder(self._feed, self._slot, now)
        if holder is not None and holder.name != self._adapter:
            return Standing("waiting", f"the adapter {holder.name} writes to the slot {self._slot}")
        other = self.other(now)
        if other is None:
            return Standing("up")
        mine = self._registry.adapter(self._feed, self._adapter)
        if self.standing.state == "up" and mine is not None and self._rank(mine) < self._rank(other):
            return Standing("up")  # both began at once: the other one gives way
        try:
            found = decide(self._source, other.beat.source)
        except FeedSettingsError as error:
            return Standing("refused", f"the source of the adapter {other.name} is not possible: {error}")
        if isinstance(found, Refused):
            return Standing("refused", f"no pair with the adapter {other.name}: {found.reason}"[:1000])
        return Standing("up")

    @staticmethod
    def _rank(adapter: KnownAdapter) -> tuple[int, str]:
        return adapter.beat.boot, adapter.name
