"""kafka-python's consumer as the subscriber needs it: without a group, and it says when each partition was answered.

kafka-python's `poll` returns nothing both if there is nothing and if no broker answers. Only answers of brokers say
that a partition was read up to its end, so they are noted here.
"""

import contextlib
import time
from typing import Any, Final

import kafka
from kafka import errors
from kafka.structs import TopicPartition

from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber.errors import FeedUnavailable

FETCH_WAIT_MS: Final = 100
"""So long a broker waits for records before it answers that there are none."""
POLL_RECORDS: Final = 500
_REQUEST_MS: Final = 10_000
_FINAL: Final = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)


class FeedConsumer:
    """Connects at once. Raises FeedUnavailable if no broker answers within `connect_s`."""

    def __init__(self, brokers: list[str], options: KafkaOptions, connect_s: float) -> None:
        self._connect_s = connect_s
        try:
            self.kafka: Any = kafka.KafkaConsumer(
                bootstrap_servers=brokers,
                client_id="waystation-feed",
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                request_timeout_ms=_REQUEST_MS,
                reconnect_backoff_max_ms=500,
                bootstrap_timeout_ms=int(connect_s * 1000),
                max_poll_records=POLL_RECORDS,
                metrics_enabled=False,
                **options.client(),
            )
        except (errors.KafkaError, OSError, ValueError) as error:
            raise unavailable(error, f"no broker of {', '.join(brokers)} answers") from error
        self._answered: dict[TopicPartition, float] = {}
        fetcher = self.kafka._fetcher
        handle = fetcher._handle_fetch_response

        def answered(node_id: Any, offsets: Any, sent: Any, response: Any) -> Any:
            now = time.monotonic()
            for partition in offsets:
                self._answered[partition] = now
            return handle(node_id, offsets, sent, response)

        fetcher._handle_fetch_response = answered

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is none of that name. Raises FeedUnavailable."""
        try:
            found = self.kafka.partitions_for_topic(topic)
        except errors.KafkaError as error:
            raise unavailable(error, f"the partitions of {topic} are not known") from error
        return len(found or ())

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Records of some of the assigned partitions; empty after `timeout_ms`. Raises what kafka-python raises."""
        fetcher = self.kafka._fetcher
        if not fetcher._next_partition_records:
            # kafka-python keeps the records that it had fetched of a partition that was paused, and gives them after it
            # was resumed only if this is None. It is an empty object once another partition was read.
            fetcher._next_partition_records = None
        found: dict[TopicPartition, list[Any]] = self.kafka.poll(timeout_ms)
        return found

    def answered_at(self, partition: TopicPartition) -> float:
        """When a broker last answered about a partition, by the monotonic clock; -inf for never."""
        return self._answered.get(partition, float("-inf"))

    def last_append_ms(self, partition: TopicPartition, begin: int, end: int) -> int:
        """When the last record before `end` was appended; 0 if there is none. Leaves nothing assigned."""
        if end <= begin:
            return 0
        self.kafka.assign([partition])
        self.kafka.seek(partition, end - 1)
        until = time.monotonic() + self._connect_s
        try:
            while time.monotonic() < until:
                for records in self.kafka.poll(200, max_records=1).values():
                    return max(0, int(records[0].timestamp))
        finally:
            self.kafka.assign([])
        return 0

    def close(self) -> None:
        with contextlib.suppress(errors.KafkaError, OSError):
            self.kafka.close(autocommit=False, timeout_ms=1_000)


def is_final(error: Exception) -> bool:
    """Whether trying again is in vain: credentials, rights."""
    return isinstance(error, _FINAL)


def unavailable(error: Exception, what: str) -> FeedUnavailable:
    """kafka-python's errors often have no text."""
    return FeedUnavailable(f"{what}: {type(error).__name__}{': ' if str(error) else ''}{str(error)[:300]}")
