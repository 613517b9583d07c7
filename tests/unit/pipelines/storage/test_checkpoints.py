"""Where a query begins, by its checkpoint and its table, and what it refuses to pass over (Q1)."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from pipelines.kafka import positions
from pipelines.kafka.positions import EARLIEST, Lost, ReadTopic
from pipelines.kafka.starting_offsets import PositionsUnknown, RecordsDeleted, resolve
from pipelines.storage.checkpoints import Checkpoint, DamagedCheckpoint, TopicReplaced
from pipelines.storage.table_files import TableFiles
from pipelines.streams import StreamId
from schemas.tables import MESSAGES

STREAM = StreamId("messages")
TOPIC = ReadTopic("ws.ingress", "id-1", {0: 0, 1: 40})
ROWS = pa.table({"id": ["m"]})


def checkpoint(tables: Path) -> Checkpoint:
    return Checkpoint(STREAM, str(tables), MESSAGES.name)


def written(checkpoint: Checkpoint, log: str, batch: int, text: str = "") -> None:
    path = Path(checkpoint.uri) / log / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def planned(checkpoint: Checkpoint, batch: int, reached: dict[int, int]) -> None:
    """As Spark writes it before a batch."""
    ends = {TOPIC.name: {str(partition): offset for partition, offset in reached.items()}}
    written(checkpoint, "offsets", batch, f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{json.dumps(ends)}")


def table(tables: Path, reached: dict[int, int] | None) -> TableFiles:
    """A table with a row, that says it has so much."""
    uri = f"{tables}/messages"
    told = [] if reached is None else positions.transactions(TOPIC, reached)
    write_deltalake(uri, ROWS, mode="append", commit_properties=CommitProperties(app_transactions=told))
    return TableFiles(uri, MESSAGES, TOPIC)


def begun(tables: Path, files: TableFiles | None, topic: ReadTopic = TOPIC) -> tuple[str, list[Lost]]:
    lost: list[Lost] = []
    return resolve(topic, checkpoint(tables), files, lost.append), lost


def test_without_a_checkpoint_a_query_begins_where_its_table_ends(tmp_path: Path) -> None:
    """What the broker has deleted meanwhile is said."""
    files = table(tmp_path, {0: 7, 1: 50})
    assert begun(tmp_path, files) == ('{"ws.ingress": {"0": 7, "1": 50}}', [])
    assert begun(tmp_path, None) == (EARLIEST, [])
    files = table(tmp_path, {0: 8, 1: 30})
    lost = [Lost("ws.ingress", 1, 30, 40)]
    assert begun(tmp_path, files) == ('{"ws.ingress": {"0": 8, "1": 40}}', lost)


def test_an_empty_table_is_begun_at_the_beginning(tmp_path: Path) -> None:
    uri = f"{tmp_path}/messages"
    DeltaTable.create(uri, ROWS.schema)
    assert begun(tmp_path, TableFiles(uri, MESSAGES, TOPIC)) == (EARLIEST, [])


def test_a_table_that_does_not_say_what_it_has_is_not_begun_anew(tmp_path: Path) -> None:
    """One of an earlier version, whose checkpoint is lost: its rows would come twice."""
    files = table(tmp_path, None)
    with pytest.raises(PositionsUnknown, match=r"messages-1 is missing.*restore the checkpoint, or move the table"):
        begun(tmp_path, files)
    planned(checkpoint(tmp_path), 0, {0: 1, 1: 1})
    assert begun(tmp_path, files) == (EARLIEST, []), "with a checkpoint it goes on"


def test_a_topic_made_again_is_another_topic(tmp_path: Path) -> None:
    """Its offsets are not those of the checkpoint, whether they are more or less; without one it is read whole."""
    files = table(tmp_path, {0: 7, 1: 50})
    begun(tmp_path, files)
    planned(checkpoint(tmp_path), 0, {0: 9, 1: 60})
    assert begun(tmp_path, files) == (EARLIEST, [])
    again = TOPIC._replace(id="id-2", begins={0: 0, 1: 0})
    with pytest.raises(TopicReplaced, match=r"topic ws.ingress was deleted and created again .* remove .*messages-1"):
        begun(tmp_path, files, topic=again)
    (Path(checkpoint(tmp_path).uri) / "offsets" / "0").unlink()
    assert begun(tmp_path, TableFiles(f"{tmp_path}/messages", MESSAGES, again), topic=again) == (EARLIEST, [])


def test_records_deleted_before_they_were_read_stop_a_query(tmp_path: Path) -> None:
    """They are named; a batch that was planned only does not count as read."""
    of = checkpoint(tmp_path)
    for batch, reached in enumerate(({0: 0, 1: 9}, {0: 5, 1: 35}, {0: 9, 1: 60})):
        planned(of, batch, reached)
        if batch < 2:
            written(of, "commits", batch)
    with pytest.raises(RecordsDeleted, match=r"offsets 35 to 39 of partition 1; to continue without them, stop"):
        begun(tmp_path, None)
    written(of, "commits", 2)
    assert begun(tmp_path, None) == (EARLIEST, [])
    assert of.reached(2) == {"ws.ingress": {0: 9, 1: 60}}


def test_offsets_that_are_cut_off_anywhere_are_no_offsets(tmp_path: Path) -> None:
    """As a power failure leaves the file. Taken for none, they would make a query begin elsewhere, and say nothing of
    records that the broker has deleted."""
    of = checkpoint(tmp_path)
    planned(of, 0, {0: 5, 1: 35})
    written(of, "commits", 0)
    whole = (Path(of.uri) / "offsets" / "0").read_text()
    for length in range(len(whole)):
        written(of, "offsets", 0, whole[:length])
        with pytest.raises(DamagedCheckpoint, match="offsets/0"):
            of.taken()
        with pytest.raises(DamagedCheckpoint, match="offsets/0"):
            begun(tmp_path, None)
    written(of, "offsets", 0, whole)
    assert of.taken() == {"ws.ingress": {0: 5, 1: 35}}


@pytest.mark.parametrize("damaged", ["\0" * 40, '{"a": {"0": null}}', '{"a": {"x": 1}}', '{"a": {"0": 1}}\n{"b": {"0"'])
def test_offsets_that_nobody_has_written_are_no_offsets(tmp_path: Path, damaged: str) -> None:
    written(checkpoint(tmp_path), "offsets", 0, f'v1\n{{"batchWatermarkMs":0}}\n{damaged}')
    with pytest.raises(DamagedCheckpoint, match="offsets/0"):
        checkpoint(tmp_path).reached(0)


@pytest.mark.parametrize("line", ["-", "3", '{"logOffset":3}', '{"a":1}'])
def test_a_source_that_is_not_kafka_has_no_offsets(tmp_path: Path, line: str) -> None:
    """Or has had nothing yet."""
    written(checkpoint(tmp_path), "offsets", 0, f'v1\n{{"batchWatermarkMs":0}}\n{line}\n{{"a":{{"0":1}}}}')
    assert checkpoint(tmp_path).reached(0) == {"a": {0: 1}}


@pytest.mark.parametrize("content", ["", "v1"], ids=["empty", "cut off"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    """As a power failure leaves it: that is a failure of one query, which tries again."""
    damaged = checkpoint(tmp_path)
    written(damaged, "offsets", 3, content)
    with pytest.raises(DamagedCheckpoint, match="offsets/3"):
        damaged.reached(3)
    written(damaged, "offsets", 0)
    (Path(damaged.uri) / "topics.json").write_text(content)
    with pytest.raises(DamagedCheckpoint, match=r"topics\.json"):
        damaged.belongs_to(TOPIC)
