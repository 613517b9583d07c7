"""The loop of `waystation feed sequence`: reads, reserves, numbers, writes."""

import os
from collections.abc import Callable
from pathlib import Path

from edge.feeds.errors import OutputClosed
from edge.feeds.sequence import Reserved, Sequencer
from edge.feeds.sequence_state import SequenceState
from feeds.errors import FeedSettingsError

READ_BYTES = 65_536


def sequence(
    source: int, output: int, state: Path | None, new_epoch: int, *, epoch: int | None = None, block: int
) -> int:
    """Numbers the lines of the descriptor `source` until it ends; the last number. `new_epoch`: if there is no state;
    `epoch`: what the user asks for. Raises FeedError, OSError."""
    if state is None:
        return _run(
            source,
            output,
            Sequencer(Reserved(new_epoch if epoch is None else epoch, 0, is_in_order=True), block),
            _nowhere,
        )
    with SequenceState(state) as file:
        start = file.read()
        if start is None:
            start = Reserved(new_epoch if epoch is None else epoch, 0, is_in_order=True)
        elif epoch is not None and epoch != start.epoch:
            raise FeedSettingsError(f"{state} is of epoch {start.epoch}: remove it to begin epoch {epoch}")
        return _run(source, output, Sequencer(start, block), file.write)


def _run(source: int, output: int, sequencer: Sequencer, write_state: Callable[[Reserved], None]) -> int:
    try:
        while data := os.read(source, READ_BYTES):
            reserved = sequencer.reserve(data)
            if reserved is not None:
                write_state(reserved)
            _write(output, sequencer.number(data))
        _write(output, sequencer.end())
    except (KeyboardInterrupt, OutputClosed):
        write_state(sequencer.ended(is_in_order=False))
        raise
    write_state(sequencer.ended(is_in_order=True))
    return sequencer.last


def _write(output: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(output, rest) :]
        except BrokenPipeError as error:
            raise OutputClosed(
                "nobody reads the numbered lines any more: start the receivers and this command again"
            ) from error


def _nowhere(_: Reserved) -> None:
    """Without a state file each run is an epoch of its own."""
