"""The power fails while lines are numbered: the disk has reserved every number that was written (S2)."""

from pathlib import Path

from edge.feeds.sequence import Reserved, Sequencer
from edge.feeds.sequence_state import SequenceState
from tests.disk import mounted, needs_disk
from tests.draw import generator, times


@needs_disk
def test_no_number_is_used_again_after_a_power_cut(tmp_path: Path) -> None:
    draws, last = generator("sequence power cuts"), 0
    with mounted(tmp_path) as disk:
        for _ in range(times(2, 20)):
            with SequenceState(disk.directory / "numbers.json") as state:
                start = state.read() or Reserved(51, 0, is_in_order=True)
                assert start.number >= last
                sequencer = Sequencer(start, 3)
                for _ in range(draws.randint(1, 20)):
                    reserved = sequencer.reserve(b"line\n")
                    if reserved is not None:
                        state.write(reserved)
                    assert sequencer.number(b"line\n").endswith(b":%d\tline\n" % sequencer.last)
                    last = sequencer.last
                disk.cut()
            disk.unmount()
            disk.mount()
        with SequenceState(disk.directory / "numbers.json") as state:
            found = state.read()
            assert found is not None
            assert found.number >= last > 0
