"""What is read from, and stored in, the checkpoint of a query besides Spark's own files."""

import json
from functools import cached_property

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from pipelines.kafka.positions import Offsets, ReadTopic, logged_offsets
from pipelines.streams import StreamId
from schemas.errors import WaystationError

TOPICS = "topics.json"
"""In the checkpoint: the ids of the topics its offsets belong to, by topic name."""


class TopicReplaced(WaystationError):
    """The checkpoint's offsets belong to another topic of this name: the topic was deleted and recreated."""


class DamagedCheckpoint(WaystationError):
    """A file of a checkpoint is not what Spark or this class has written: after a power failure it may be empty."""


class Checkpoint:
    """The checkpoint of `stream`, whose tables are under the directory or URI `tables`; `table` is that of
    :meth:`pipelines.streams.StreamId.checkpoint`."""

    def __init__(self, stream: StreamId, tables: str, table: str | None = None) -> None:
        self.uri = stream.checkpoint(tables, table)
        self._stream = stream
        self._tables = tables
        self._directory = self.uri.removeprefix(f"{tables}/")

    @property
    def is_new(self) -> bool:
        """Whether no batch was ever started."""
        return not self._batches("offsets")

    def taken(self) -> Offsets:
        """How far the finished batches have read their topics. Raises DamagedCheckpoint."""
        finished = self._batches("commits")
        return self.reached(max(finished)) if finished else {}

    def reached(self, batch_id: int) -> Offsets:
        """How far a batch reads its topics; Spark stores that before the batch starts. Empty for other sources. Raises
        DamagedCheckpoint."""
        name = f"offsets/{batch_id}"
        try:
            _, _, first, *others = self._read(name).split("\n")
            return {topic: of for source in (first, *others) for topic, of in logged_offsets(source).items()}
        except ValueError as error:
            raise self._damaged(name) from error

    def belongs_to(self, topic: ReadTopic) -> None:
        """Record that the offsets are those of `topic`. Raises TopicReplaced if they belong to another topic,
        DamagedCheckpoint."""
        known = self._topic_ids()
        if known.get(topic.name, topic.id) != topic.id:
            raise TopicReplaced(
                f"topic {topic.name} was deleted and created again after query {self._stream.query} had read it, and "
                f"its unread records are lost: to read the new topic from its beginning, stop the ledger, remove "
                f"{self.uri} and start it again"
            )
        if topic.name not in known:
            self.write(TOPICS, json.dumps({topic.name: topic.id}).encode())

    def write(self, name: str, content: bytes) -> None:
        """Write a file of ours into the checkpoint, replacing one of that name; a reader gets the old content or the
        new."""
        # Unbuffered streams pass deltalake's handler a buffer, but it accepts only bytes.
        stream = DeltaStorageHandler(self._tables).open_output_stream(f"{self._directory}/{name}")
        with pa.BufferedOutputStream(stream, len(content) + 1) as file:
            file.write(content)

    def remove(self, name: str) -> None:
        """Remove a file of the checkpoint, if it is there."""
        path = f"{self._directory}/{name}"
        if self._files.get_file_info(path).type is FileType.File:
            self._files.delete_file(path)

    @cached_property
    def _files(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self._tables))

    def _topic_ids(self) -> dict[str, str]:
        """The ids of the topics that the offsets belong to, by name. Raises DamagedCheckpoint."""
        try:
            return {} if self.is_new else dict(json.loads(self._read(TOPICS, "{}")))
        except (ValueError, TypeError) as error:
            raise self._damaged(TOPICS) from error

    def _damaged(self, name: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(
            f'{name} in {self.uri} is damaged: see "a power failure has damaged a file of a checkpoint" in '
            "docs/data-engineers.md"
        )

    def _batches(self, log: str) -> list[int]:
        """The batches in one of Spark's logs."""
        found = self._files.get_file_info(FileSelector(f"{self._directory}/{log}", allow_not_found=True))
        return [int(info.base_name) for info in found if info.base_name.isdecimal()]

    def _read(self, name: str, otherwise: str | None = None) -> str:
        path = f"{self._directory}/{name}"
        if otherwise is not None and self._files.get_file_info(path).type is FileType.NotFound:
            return otherwise
        with self._files.open_input_file(path) as file:
            return str(file.read().decode())
