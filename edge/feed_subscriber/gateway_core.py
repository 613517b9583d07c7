"""The merged stream of a gateway as items: the gap check by number, without I/O (S3).

A gateway has merged both copies, so what is missing in its stream is lost. A message that comes again, because its
acknowledgement was lost with the connection or the process, is known by its number. An acknowledgement goes out once
the items up to then are committed, and that is durable.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from edge.client.message import IncomingMessage
from edge.feed_subscriber.epochs import Epochs
from edge.feed_subscriber.items import Ended, FeedDelivery, FeedItem, Gap, Lost
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.outputs import Outputs
from edge.feed_subscriber.state import StateChange, StoredState
from edge.feed_subscriber.stream_view import StreamView
from feeds.errors import FeedRecordError
from feeds.message import FEEDS, NUMBER_MAX, checked_stream, epoch_of, name_of

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")


class GatewayCore:
    """Of the feed named `feed`. Source streams begin with the first message that comes, unless they are stored."""

    def __init__(self, feed: str, limits: FeedLimits, stored: StoredState, streams: frozenset[str] | None) -> None:
        self._prefix, self._limits, self._streams = f"feeds/{feed}/", limits, streams
        self.outputs = Outputs()
        self.counts: Counter[str] = Counter()
        self._epochs = Epochs(limits.epoch_s)
        self._ended = dict(stored.ended)
        self._given = {one.stream: StreamView.restored(one, limits.merge) for one in stored.streams}
        self._committed = {one.stream: StreamView.restored(one, limits.merge) for one in stored.streams}
        for view in self._given.values():
            self._epochs.add(view)
        self._changed: dict[str, StreamView | None] = {}
        self._changed_ended: dict[str, int] = {}
        self._unacknowledged: deque[tuple[int, Callable[[], None]]] = deque()
        self._acknowledgeable = 0

    def take(self, incoming: IncomingMessage, now_s: float) -> None:
        """A message that has arrived."""
        try:
            found = self._decode(incoming)
        except FeedRecordError:
            self.counts["malformed"] += 1
        else:
            if self._streams is None or name_of(found.stream) in self._streams:
                self._apply(found)
        self.tick(now_s)
        self._unacknowledged.append((self.outputs.produced, incoming.acknowledge))

    def tick(self, now_s: float) -> None:
        """What time does."""
        for stream in self._epochs.ended(now_s, lambda feed: False):
            self._epochs.remove(stream)
            del self._given[stream]
            self._ended[name_of(stream)] = max(epoch_of(stream), self._ended.get(name_of(stream), -1))
            self.outputs.add(Ended, stream=stream)

    def commit(self, ordinal: int) -> None:
        """The application is done with all items up to this one."""
        for item in self.outputs.commit(ordinal):
            match item:
                case FeedDelivery() | Lost():
                    view = self._committed.get(item.stream)
                    if view is None:
                        view = self._committed[item.stream] = self._view(item)
                    view.commit(item)
                    self._changed[item.stream] = view
                case Ended(stream=stream):
                    self._committed.pop(stream, None)
                    self._changed[stream] = None
                    self._changed_ended[name_of(stream)] = epoch_of(stream)

    def changes(self) -> StateChange | None:
        """What is to be stored since the last time."""
        streams = {name: None if view is None else view.state() for name, view in self._changed.items()}
        ended = self._changed_ended
        self._changed, self._changed_ended = {}, {}
        self._acknowledgeable = self.outputs.committed
        return StateChange(streams, {}, ended) if streams or ended else None

    def stored(self) -> None:
        """What :meth:`changes` has said is durable: acknowledges what led to it. What led to no item goes with the
        items before it."""
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= self._acknowledgeable:
            waiting.popleft()[1]()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _apply(self, found: FeedDelivery) -> None:
        stream, outputs = found.stream, self.outputs
        view = self._given.get(stream)
        if view is None:
            if epoch_of(stream) <= self._ended.get(name_of(stream), -1):
                self.counts["expired"] += 1
                return
            if len(self._given) + len(self._ended) >= self._limits.merge.streams:
                self.counts["refused"] += 1
                return
            view = self._given[stream] = self._view(found)
            self._epochs.add(view)
        if view.has(found):
            self.counts["duplicate"] += 1
            return
        if not found.part and found.sequence > view.next:
            first, last = view.next, found.sequence - 1
            outputs.add(Gap, stream=stream, first=first, last=last)
            outputs.append(
                lost := Lost(ordinal=outputs.produced + 1, stream=stream, first=first, last=last, reason="gateway")
            )
            view.commit(lost)
        item = FeedDelivery(
            ordinal=outputs.produced + 1,
            stream=stream,
            sequence=found.sequence,
            part=found.part,
            payload=found.payload,
            read_us=found.read_us,
            adapter=found.adapter,
            late=found.late or (not found.part and found.sequence < view.next),
        )
        outputs.append(item)
        view.commit(item)

    def _view(self, item: FeedItem) -> StreamView:
        assert isinstance(item, FeedDelivery | Lost)
        first = item.first if isinstance(item, Lost) else item.sequence + (item.part > 0)
        view = StreamView(item.stream, first, self._limits.merge, is_start=False)
        for feed in FEEDS:  # the stream of a gateway is both
            view.join(feed, first)
        return view

    def _decode(self, incoming: IncomingMessage) -> FeedDelivery:
        """The message, with ordinal 0. Raises FeedRecordError."""
        found = dict(incoming.user_properties)
        stream = incoming.topic.removeprefix(self._prefix)
        if stream == incoming.topic:
            raise FeedRecordError(f"topic {incoming.topic[:300]!r} is not of this feed")
        checked_stream(stream)
        adapter = found.get("feed-adapter", "")
        if not adapter:
            raise FeedRecordError("the user property feed-adapter is missing")
        return FeedDelivery(
            ordinal=0,
            stream=stream,
            sequence=_number(found, "feed-sequence"),
            part=_number(found, "feed-part"),
            payload=incoming.payload,
            read_us=_number(found, "feed-read-us"),
            adapter=adapter,
            late="feed-late" in found,
        )


def _number(found: dict[str, str], name: str) -> int:
    text = found.get(name, "")
    if _NUMBER.fullmatch(text) is None or int(text) > NUMBER_MAX:
        raise FeedRecordError(f"the user property {name} {text[:40]!r} is no number of 0 to 2^63-1")
    return int(text)
