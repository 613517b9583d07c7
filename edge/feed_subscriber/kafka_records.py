"""From records of Kafka to what the core takes: batches of a feed's partition, records of the topic `feeds` (S3).

Whatever is in a topic is hostile: what is no feed message is counted, and left out.
"""

from collections.abc import Sequence
from typing import Any, Final

from edge.feed_subscriber.batch import Batch, Part
from edge.feed_subscriber.replay import ReadPosition
from feeds.errors import FeedRecordError
from feeds.message import FeedMessage, name_of
from feeds.passed import decode_either

_KEYS_MAX: Final = 10_000


class FeedRecords:
    """Decodes the records of the source streams named `streams` (all epochs of each); None: of all."""

    def __init__(self, streams: frozenset[str] | None) -> None:
        self._streams = streams
        self._wanted: dict[bytes | None, bool] = {}

    def batch(self, partition: int, episode: int, records: Sequence[Any]) -> Batch:
        """Of records of one partition, as kafka-python gives them; at least one."""
        parts: list[Part] = []
        messages: list[FeedMessage] = []
        malformed = 0
        for record in records:
            if self._streams is not None and not self._is_wanted(record.key):
                continue
            try:
                found = decode_either(record.key, record.headers, record.value)
            except FeedRecordError:
                malformed += 1
                continue
            if isinstance(found, FeedMessage):
                if not messages:
                    parts.append(messages)
                messages.append(found)
            else:
                parts.append(found)
                messages = []
        last = records[-1]
        return Batch(partition, episode, parts, ReadPosition(last.offset + 1, max(0, last.timestamp)), malformed)

    def _is_wanted(self, key: bytes | None) -> bool:
        found = self._wanted.get(key)
        if found is None:
            if len(self._wanted) >= _KEYS_MAX:
                self._wanted.clear()
            name = name_of((key or b"").decode(errors="replace"))
            found = self._wanted[key] = name in (self._streams or ())
        return found
