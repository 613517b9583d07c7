"""Applying to a shard what is on `egress` about redundant feeds: merged, then offered to sessions like any message
(S3).

These records do not wait for the catch-up reader, and nothing waits for them: a feed's messages come to a shard by
`egress` only. :class:`FeedWriter` puts there what routers do not send yet. A copy that is not delivered is relinquished
at once, so that it is complete; one that is held, when it is let go.
"""

import asyncio

from gateway.record import Record
from gateway.shard.delivery import Deliverer
from gateway.shard.feed_properties import stamps_section
from gateway.shard.feed_records import DecisionRecord, FeedCopy, FromHome, read
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.merged_feeds import Merged
from gateway.shard.messages import PendingMessage, Release
from gateway.shard.node import Node
from gateway.shard.offering import Offering, find_matches, slices
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.subscription import SessionSubscription, get_merged
from gateway.shard.trie import Search
from gateway.shard.work import RECIPIENT, RECORD, Steps
from schemas.errors import RecordError

_LARGE = 200
"""A message with more matching subscriptions, or more nodes to search, is offered in steps."""


class FeedConsumer:
    """Of one shard."""

    def __init__(
        self, node: Node, shard: Shard, spool: ShardSpool, deliverer: Deliverer, offering: Offering, writer: FeedWriter
    ) -> None:
        self._node = node
        self._shard = shard
        self._feeds = shard.feeds
        self._spool = spool
        self._deliverer = deliverer
        self._offering = offering
        self._writer = writer

    def read(self, record: Record) -> FeedCopy | FromHome | None:
        """What a record is whose key begins as topics of feeds do; None if it has no mark, so that it is a message like
        others. Raises RecordError."""
        found = read(record)
        about = found.record if isinstance(found, FromHome) else found
        is_fence = isinstance(about, DecisionRecord) and not about.decisions
        if about is not None and not is_fence and not self._feeds.has(about.name):
            raise RecordError(f"the feed {about.name!r} is not in feeds.names")
        return found

    def apply(self, found: FeedCopy | FromHome, position: int) -> Steps[None] | None:
        """Applies what stands at `position`; returns the remaining work."""
        feeds, now_ms = self._feeds, asyncio.get_running_loop().time() * 1000
        one = found.record if isinstance(found, FromHome) else found
        if position < feeds.applied_to:
            merged = self._apply_again(one, position)
        else:
            merged = feeds.nothing_again()
            if isinstance(found, FromHome) and not feeds.counts(found.epoch):
                self._node.counts["feed_records_fenced"] += 1
            elif isinstance(one, DecisionRecord):
                merged += feeds.decide(one, position, now_ms)
            elif self._is_first(one):
                self._writer.instructed(one)
                merged += feeds.take(one, now_ms)
        if len(merged) == 1:
            return self._go_on(merged[0])
        return self._each(merged) if merged else None

    def refused(self, position: int) -> Steps[None] | None:
        """The record at `position` cannot be read; returns the remaining work."""
        merged = self._feeds.refused(position)
        return self._each(merged) if merged else None

    def adjust(self) -> None:
        """After a batch of records."""
        self._writer.schedule()

    def _apply_again(self, found: FeedCopy | DecisionRecord, position: int) -> list[Merged]:
        """A restart reads records again. Those that count are not finished."""
        if isinstance(found, DecisionRecord) or position not in self._shard.unfinished:
            return []
        if self._shard.take_unfinished(position):
            self._join(found)
            return []
        return self._feeds.found_again(found)

    def _is_first(self, copy: FeedCopy) -> bool:
        """Whether this is not a further instruction for a message that has come before."""
        instruction = copy.instruction
        if instruction is None:
            return True
        kind = self._feeds.copies.accept(instruction.scope, instruction.partition, instruction.offset)
        if kind == "repetition":
            self._node.counts["copies_dropped"] += 1
        elif kind == "of the other scope":
            self._join(copy)
        return kind == "first"

    def _join(self, copy: FeedCopy) -> None:
        """An instruction of the other scope is relinquished with the message; at once if that is done."""
        shard, place = self._shard, copy.place
        pending, held, mid = shard.find_live(place), self._feeds.find(place), shard.spooled.get(place)
        if pending is not None:
            pending.instructions += copy.instructions
            pending.copies += (copy.position,)
        elif held is not None:
            held.instructions += copy.instructions
            held.copies += (copy.position,)
        elif mid is not None:
            for instruction in copy.instructions:
                self._spool.add_instruction(mid, copy.message, instruction)
        elif copy.instructions:
            self._node.reporter.relinquish_later(copy.message, shard.number, copy.instructions)

    def _each(self, merged: list[Merged]) -> Steps[None]:
        for one in merged:
            rest = self._go_on(one)
            if rest is not None:
                yield from rest
            if self._node.work.spend(RECORD):
                yield True

    def _go_on(self, merged: Merged) -> Steps[None] | None:
        """Offers a message, or drops it. Returns the remaining work if there are many to get it."""
        copy, release, shard = merged.copy, merged.release, self._shard
        pending = self._pending(copy, release)
        if release is None:
            self._deliverer.offered(pending)  # to nobody: its instruction is relinquished
            return None
        copy.message.properties = stamps_section(copy.stamps, is_late=release.is_late)
        found = shard.trie.begin(copy.message.topic, _LARGE)
        if isinstance(found, Search) or len(found) > _LARGE:
            return self._offer_many(pending, release)
        self._node.work.spent += len(found) * RECIPIENT
        self._offering.offer_at_once(pending, get_merged(release, found) if found else ())
        return None

    def _offer_many(self, pending: PendingMessage, release: Release) -> Steps[None]:
        found = yield from find_matches(self._shard, pending.message.topic, self._node.work)
        wanted = list[SessionSubscription]()
        for part in slices(found):
            wanted += get_merged(release, part)
            if self._node.work.spend(len(part)):
                yield True
        yield from self._offering.offer(pending, wanted)

    def _pending(self, copy: FeedCopy, release: Release | None) -> PendingMessage:
        shard, position, since = self._shard, copy.position, self._node.clock()
        if position < shard.reread_to:
            since = min(since, copy.message.appended / 1000)
        return PendingMessage(
            copy.message,
            shard.number,
            position,
            since,
            copy.instructions,
            copies=copy.copies,
            done=shard.finished.take(position),
            release=release,
        )
