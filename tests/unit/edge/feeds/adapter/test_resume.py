"""A file is continued exactly after a crash, in whatever order it has its numbers (S2)."""

from hypothesis import given
from hypothesis import strategies as st

from edge.feeds.adapter.resume import Checkpoint, FilePlace, LogFold, Outgoing
from feeds.message import FeedMessage
from tests.unit.edge.feeds.adapter.adapter_data import ADAPTER, composer, message

COUNT = 12
RUNS = st.lists(st.tuples(*[st.integers(0, COUNT)] * 4), max_size=4)
"""Of each: how many messages are read, how many reach each partition of the log before it is killed, and how many the
last checkpoint is behind."""

File = list[tuple[str, int, bytes]]


class Machine:
    """A file, the log of two partitions, and the checkpoint on disk."""

    def __init__(self, file: File, *, is_numbered: bool) -> None:
        self._file, self._is_numbered = file, is_numbered
        self.log: list[list[Outgoing]] = [[], []]
        self._checkpoint: Checkpoint | None = None

    def run(self, read: int, left: list[int], behind: int) -> None:
        """One process, from its start until it is killed."""
        made, _ = composer(fold := self._fold(), fold.repeated(is_numbered=self._is_numbered))
        start = self._checkpoint.place.offset if self._checkpoint and self._checkpoint.place else 0
        is_whole = True
        pieces = []
        for at in range(start, min(start + read, COUNT)):
            stream, number, payload = self._file[at]
            written = made.take([message(number if self._is_numbered else None, payload, stream)], 1)
            pieces.append((at + 1, made.is_repeating, written))
        for place, was_repeating, written in pieces:
            for record in written:
                partition = int(record.stream[1]) % 2
                if left[partition] > 0:
                    left[partition] -= 1
                    self.log[partition].append(record)
                else:
                    left[partition], is_whole = 0, False
            if is_whole and not was_repeating and place - start <= behind:
                offsets = {0: len(self.log[0]), 1: len(self.log[1])}
                self._checkpoint = Checkpoint("x", FilePlace(0, 0, place), offsets, self._highest())

    def _fold(self) -> LogFold:
        checkpoint = self._checkpoint
        fold = LogFold(ADAPTER, checkpoint, is_complete=True)
        for partition, records in enumerate(self.log):
            since = checkpoint.offsets[partition] if checkpoint else 0
            for offset, record in enumerate(records):
                fold.own(record, is_since=offset >= since)
        return fold

    def _highest(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in [one for records in self.log for one in records]:
            found[record.stream] = max(record.sequence, found.get(record.stream, 0))
        return found


@given(st.permutations(range(1, COUNT + 1)), RUNS, st.booleans(), st.integers(1, 3))
def test_nothing_missing_and_nothing_twice(
    order: list[int], runs: list[tuple[int, ...]], is_numbered: bool, streams: int
) -> None:
    """S2: whenever it is killed, and however far the partitions are from each other. The last run ends in order."""
    if not is_numbered:
        order = sorted(order)
    file = [(f"s{number % streams}@0", number, b"%d" % number) for number in order]
    machine = Machine(file, is_numbered=is_numbered)
    for read, one, other, behind in runs:
        machine.run(read, [one, other], behind)
    machine.run(COUNT, [COUNT, COUNT], 0)
    written = [one for records in machine.log for one in records if isinstance(one, FeedMessage)]
    assert sorted(int(one.payload) for one in written) == list(range(1, COUNT + 1))
    for stream in {one.stream for one in written}:
        own = [one for one in written if one.stream == stream]
        assert len({one.sequence for one in own}) == len(own)
        if not is_numbered:
            assert [one.sequence for one in own] == list(range(1, len(own) + 1))
            assert [int(one.payload) for one in own] == sorted(int(one.payload) for one in own)


def test_of_a_long_log_without_a_checkpoint_the_end_is_enough() -> None:
    """S2: the state directory was lost. What is below all that was found is taken to be there."""
    for is_numbered in (True, False):
        log = LogFold(ADAPTER, None)
        log.own(FeedMessage("src@0", 3, 0, 3, 1, ADAPTER, b""), is_since=True)
        made, _ = composer(log, log.repeated(is_numbered=is_numbered))
        written = made.take([message(one if is_numbered else None, b"%d" % one) for one in range(1, 6)], 1)
        found = [(one.sequence, one.payload) for one in written if isinstance(one, FeedMessage)]
        assert found == [(4, b"4"), (5, b"5")]


def test_a_file_that_lost_its_beginning_is_read_all_the_same() -> None:
    """What should come again and does not is no reason to wait for it for ever."""
    log = LogFold(ADAPTER, Checkpoint("x", offsets={0: 0}), is_complete=True)
    log.own(FeedMessage("src@0", 3, 0, 3, 1, ADAPTER, b""), is_since=True)
    made, _ = composer(log, log.repeated(is_numbered=True))
    assert made.is_repeating
    made.take([message(one) for one in range(10, 30_010)], 1)
    assert not made.is_repeating
