"""Which retained messages are over: their topic has none any more (MQTT 5.0, 3.3.2.3.3). Pure."""

import heapq
from collections.abc import Mapping

from gateway.shard.messages import Message

_LEAST = 1_000


class RetainedExpiry:
    """Of `kept`, the retained messages by topic: `over` are those whose time has ended, until something replaces them.

    What was replaced before its time is dropped from the heap now and then: it has at most twice as many entries as
    there are messages.
    """

    def __init__(self, kept: Mapping[str, Message]) -> None:
        self._kept = kept
        self._heap: list[tuple[int, str, int]] = []
        self.over: dict[str, Message] = {}

    def replaced(self, topic: str) -> None:
        """`kept` has another message of the topic, or none."""
        self.over.pop(topic, None)
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
                self.over[entry[1]] = message

    def _find(self, entry: tuple[int, str, int]) -> Message | None:
        _, topic, offset = entry
        message = self._kept.get(topic)
        return message if message is not None and message.offset == offset else None
