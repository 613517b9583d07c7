"""What message presence events lead to: states on `message-presence-state` (M9)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.kafka.writer import KafkaWriter, Out
from pipelines.presence.custody import Limits
from pipelines.presence.message_presence import begun, fold, last_used_ms, state_format
from pipelines.sources import Kafka, topic_now
from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import file_of
from schemas.events import encode
from schemas.identity import partition_of
from schemas.states import MessagePresenceState


class MessagePresenceSink:
    """Takes the batches of :func:`pipelines.presence.message_presence.reported`: a callback for `foreachBatch`. The
    state of each message is in `directory`.

    Contract: at least once on `topic`, where only the latest record of a key counts; a repeated batch publishes the
    same. A message without events for `kept_s`, whose record is no longer kept, is ended there, at least once.
    """

    def __init__(
        self, kafka: Kafka, writer: KafkaWriter, topic: str, partitions: int, limits: Limits, directory: Path
    ) -> None:
        self._kafka = kafka
        self._writer = writer
        self._topic = topic
        self._partitions = partitions
        self._fold = partial(fold, limits)
        self._kept_ms = int(limits.kept_s * 1000)
        self._known = KeyedStates(file_of(directory, "message_presence_state"), int(limits.kept_s), self._begun)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self._known.take(batch, batch_id, "id", self._fold, self._tell, self._end, partial(last_used_ms, self._kept_ms))

    def _tell(self, _rows: list[Row], states: list[MessagePresenceState], _batch: str) -> None:
        self._writer.write(
            Out(self._topic, partition_of(state.id, self._partitions), state.id.encode(), encode(state))
            for state in states
        )

    def _end(self, messages: list[str]) -> None:
        self._writer.write(
            Out(self._topic, partition_of(name, self._partitions), name.encode(), None) for name in messages
        )

    def _begun(self, spark: SparkSession) -> Iterator[tuple[str, bytes, int]]:
        for row in topic_now(spark, self._kafka, self._topic, state_format()).toLocalIterator():
            state = begun(bytes(row.value))
            if state is not None:
                yield row.record.id, state, row.appended_ms
