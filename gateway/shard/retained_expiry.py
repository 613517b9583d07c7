"""Which retained messages are over: their topic has none any more (MQTT 5.0, 3.3.2.3.3). Pure."""

import heapq
from collections import defaultdict
from collections.abc import Mapping

from gateway.shard.messages import Message
from schemas.identity import shard_of

_LEAST = 1_000


class RetainedExpiry:
    """Of `kept`, the retained messages by topic: `over` are those whose time has ended, by shard of their sender and
    topic, until something replaces them.

    What was replaced before its time is dropped from the heap now and then: it has at most twice as many entries as
    there are messages.
    """

    def __init__(self, kept: Mapping[str, Message], shards: int) -> None:
        self._kept = kept
        self._shards = shards
        self._heap: list[tuple[int, str, int]] = []
        self.over: defaultdict[int, dict[str, Message]] = defaultdict(dict)

    def replaced(self, topic: str, old: Message | None) -> None:
        """`kept` has another message of the topic than `old`, or none."""
        if old is not None and old.expires is not None:
            self._over_of(old).pop(topic, None)
        message = self._kept.get(topic)
        if message is None or message.expires is None:
            return
        if len(self._heap) >= 2 * len(self._kept) + _LEAST:
            self._heap = [one for one in self._heap if self._find(one) is not None]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (message.expires, topic, message.offset))

    def run(self, now_ms: int) -> None:
        """It is `now_ms` since the epoch."""
        while self._heap and self._heap[0][0] <= now_ms:
            message = self._find(entry := heapq.heappop(self._heap))
            if message is not None:
                self._over_of(message)[entry[1]] = message

    def _over_of(self, message: Message) -> dict[str, Message]:
        return self.over[shard_of(message.source, self._shards)]

    def _find(self, entry: tuple[int, str, int]) -> Message | None:
        _, topic, offset = entry
        message = self._kept.get(topic)
        return message if message is not None and message.offset == offset else None
