"""One shard's state: its position on `egress[shard]`, the messages that wait for recipients, and what of it a restart
needs."""

from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from gateway.cluster.fencing import Fence, SenderFences
from gateway.shard.delivery_order import DeliveryOrder
from gateway.shard.finished_clients import FinishedClients
from gateway.shard.merged_feeds import MergedFeeds
from gateway.shard.messages import PendingMessage
from gateway.shard.numbers import ReservedNumbers
from gateway.shard.session import Session
from gateway.shard.subscription import SessionSubscription
from gateway.shard.taken_bundles import BundleLimits, TakenBundles
from gateway.shard.trie import SubscriptionTrie
from gateway.shard.window import WINDOW_SIZE

_SPOOLED_PLACES = 100_000


class ShardPosition(msgspec.Struct):
    """Where a shard resumes: records of `egress[shard]` from `restart` on are read; of those before `position` only the
    `unfinished` ones count, of which `copies` are further instructions for the same messages (earlier versions also
    said which clients are finished, by offset). Some behind `position` may be applied too: they are in `windows`, and
    in `unfinished` if they are. `windows`, `expected` and `left` (partition, offset, clients): see
    :class:`DeliveryOrder`. `fences`, by partition of `ingress` and shard, are there only where gateways share the
    shards: see :mod:`gateway.shard.ingress_fences`."""

    restart: int
    position: int
    windows: list[tuple[str, int, int, bytes]]
    unfinished: list[int] | dict[int, list[str]]
    copies: list[int] = []
    expected: dict[int, int] = {}
    left: list[tuple[int, int, Sequence[str]]] = []
    fences: dict[int, dict[int, list[Fence]]] | msgspec.UnsetType = msgspec.UNSET


class Shard:
    """Sessions, subscriptions, and live messages: of `egress` by position, direct deliveries by number. `order` is
    across both.

    `position` is behind the last record of `egress` received. A restart reads some again: `unfinished` are positions of
    those that were applied and whose messages were not finished, `copies` the further instructions among them, and
    `recovered_to` is up to where all others were applied. `reread_to` is where `egress` ended when the home started, so
    that no earlier life of the home has seen more; `spooled` finds recent messages in the spool by their place on
    `ingress`.

    `fences` are those on `ingress` that the shard has read. `inbound_from` is, by partition, from where on a restart
    looks for publishes of the shard's clients on `ingress`, as of the last checkpoint.
    """

    def __init__(
        self,
        number: int,
        bundles: BundleLimits = BundleLimits(),  # noqa: B008 - immutable
        feeds: MergedFeeds | None = None,
    ) -> None:
        self.number = number
        self.feeds = feeds or MergedFeeds()
        self.bundles = TakenBundles(bundles)
        self.order = DeliveryOrder()
        self.fences = SenderFences()
        self.inbound_from: dict[int, int] = {}
        self.sessions: dict[str, Session] = {}
        self.trie: SubscriptionTrie[SessionSubscription] = SubscriptionTrie()
        self.live: dict[int, PendingMessage] = {}
        self.direct: dict[int, PendingMessage] = {}
        self.offered = 0
        self.spooled: dict[tuple[int, int], int] = {}
        self.position = 0
        self.recovered_to = 0
        self.reread_to = 0
        self.unfinished: dict[int, None] = {}
        self.finished = FinishedClients()
        self.copies: set[int] = set()
        self.assignment_numbers = ReservedNumbers()
        self._spool_through = 0

    def spool_through(self, number: int) -> None:
        """Messages offered up to this number go to the spool with the next checkpoint, however short they wait."""
        self._spool_through = max(self._spool_through, number)

    def is_for_spool(self, pending: PendingMessage) -> bool:
        """Whether the next checkpoint moves a message to the spool, though it may not have waited for long."""
        return pending.number <= self._spool_through

    def received(self, position: int) -> None:
        """A record of `egress` is here."""
        self.position = position + 1

    def deleted_before(self, position: int) -> list[int]:
        """The first record of `egress` that is left is at `position`: those before it do not come any more. Returns the
        positions of those whose messages were not finished."""
        deleted = [at for at in self.unfinished if at < position]
        for at in deleted:
            self.take_unfinished(at)
            self.finished.take(at)
            self.finished.ended(at)
        return deleted

    def take_unfinished(self, position: int) -> bool:
        """A record that a restart reads again is applied; whether it is a further instruction for a message."""
        self.unfinished.pop(position, None)
        is_copy = position in self.copies
        self.copies.discard(position)
        return is_copy

    def hold(self, pending: PendingMessage) -> None:
        """Takes up a message that waits for recipients."""
        self.offered += 1
        pending.number = self.offered
        if pending.position >= 0:
            self.live[pending.position] = pending
        else:
            self.direct[pending.number] = pending

    def release(self, pending: PendingMessage) -> None:
        """It waits no more, or in the spool."""
        if pending.position >= 0:
            self.live.pop(pending.position, None)
            self.finished.ended(pending.position)
        else:
            self.direct.pop(pending.number, None)

    def note_spooled(self, pending: PendingMessage, mid: int) -> None:
        if len(self.spooled) >= _SPOOLED_PLACES:
            del self.spooled[next(iter(self.spooled))]
        self.spooled[pending.message.partition, pending.message.offset] = mid

    def find_live(self, place: tuple[int, int]) -> PendingMessage | None:
        """The live message at `place` on `ingress`; most likely a late one."""
        for pending in reversed(self.live.values()):
            if (pending.message.partition, pending.message.offset) == place:
                return pending
        return None

    @property
    def received_to(self) -> int:
        """Up to where records of `egress` have come, in this life or the last."""
        return max(self.position, self.recovered_to)

    @property
    def applied_to(self) -> int:
        """Up to where all records of `egress` are applied, in this life or the last."""
        parked = (record.offset() for queue in self.order.parked.values() for _, record, _ in queue.items)
        return min((position for position in parked if position >= self.recovered_to), default=self.received_to)

    @property
    def restart(self) -> int:
        """The lowest offset that a restart must read again."""
        lowest = min(chain(self.live, self.feeds.positions()), default=self.applied_to)
        return min(self.applied_to, lowest, next(iter(self.unfinished), lowest))

    def snapshot(self) -> bytes:
        copies = self.copies.union(self.feeds.further(), *(pending.copies for pending in self.live.values()))
        unfinished = sorted({*self.live, *self.unfinished, *self.feeds.positions(), *copies})
        left: list[tuple[int, int, Sequence[str]]] = [(*place, clients) for place, clients in self.order.left.items()]
        left += [(h.message.partition, h.message.offset, h.left) for h in self.live.values() if h.left]
        windows, expected = self.order.copies.save(), self.order.save_expected()
        position = ShardPosition(self.restart, self.applied_to, windows, unfinished, sorted(copies), expected, left)
        self.fences.forget(self._fences_from())
        if fences := self.fences.seen({}):
            position.fences = fences
        return msgspec.msgpack.encode(position)

    def _fences_from(self) -> dict[int, int]:
        """By partition of `ingress`, from where on messages may still be asked about: those that a restart finds as
        publishes, that the reader has not passed, and whose instruction is not certain to be a copy."""
        passed_to, from_ = self.order.passed_to or {}, dict[int, int]()
        for partition, inbound in self.inbound_from.items():
            instructed = self.order.copies.top(partition) + 1 - WINDOW_SIZE
            from_[partition] = max(0, min(inbound, instructed, passed_to.get(partition, inbound)))
        return from_

    def restore(self, raw: bytes, finished: Mapping[int, list[str]], parts: Mapping[int, int]) -> int:
        """Takes up a snapshot, and who is finished with unfinished messages; returns the offset to read from."""
        saved = msgspec.msgpack.decode(raw, type=ShardPosition)
        self.position = saved.restart
        self.recovered_to = saved.position
        if isinstance(saved.unfinished, dict):
            finished = saved.unfinished
        self.unfinished = dict.fromkeys(sorted(saved.unfinished))
        self.finished.restore(finished, parts, lambda at: at in self.unfinished or at >= saved.position)
        self.copies = set(saved.copies)
        if not isinstance(saved.fences, msgspec.UnsetType):
            self.fences = SenderFences(saved.fences)
        reread_to = max(saved.position, max(saved.unfinished, default=-1) + 1)
        self.order.restore(saved.windows, saved.expected, saved.left, reread_to)
        return saved.restart
