"""Positions in a checkpoint (R5)."""

from pipelines.checkpoints import committed_positions

OFFSETS = b'v1\n{"batchWatermarkMs":0}\n{"ws.ingress":{"0":%d,"1":2}}\n'


def test_the_newest_committed_batch_counts() -> None:
    """A batch that is in the offsets alone may not have been written."""
    files = {"offsets": {8: OFFSETS % 80, 9: OFFSETS % 90, 10: OFFSETS % 100}, "commits": {8: b"v1\n{}", 9: b"v1\n{}"}}
    assert committed_positions(files) == '{"ws.ingress":{"0":90,"1":2}}'


def test_without_a_committed_batch_there_are_none() -> None:
    assert committed_positions({}) is None
    assert committed_positions({"offsets": {0: OFFSETS % 1}, "commits": {}}) is None
