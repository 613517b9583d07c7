"""Sequence numbers that start over: which number without end a counter's value stands for (S2).

A value is taken for the number nearest to the highest so far, among all that the counter shows as this value. It is
right as long as a message is late or ahead by less than half of the counter's range.

Both adapters of a pair have to count the same rounds. One that starts later is told where the stream is, by `near`: the
highest number in the feed's log. Without it an adapter begins in round 0, where numbers are the counter's values.
"""

from collections.abc import Mapping

from edge.feeds.errors import FrameError
from feeds.counter import STREAMS_MAX, Counter


class Unwrapper:
    """The numbers of one stream. `near`: a number close to which the next one is; None: it is in round 0."""

    def __init__(self, counter: Counter, near: int | None = None) -> None:
        self._counter = counter.checked()
        self._highest = near

    @property
    def highest(self) -> int | None:
        """The highest number so far."""
        return self._highest

    def unwrap(self, value: int) -> int:
        """The number of a counter's value. It is below `counter.first` if the message is from before round 0. Raises
        FrameError if the counter does not have this value."""
        if not self._counter.first <= value <= self._counter.last:
            raise FrameError(
                f"number {value} is not in the counter's range, {self._counter.first} to {self._counter.last}"
            )
        if self._highest is None:
            self._highest = value
            return value
        half = self._counter.size // 2
        number = self._highest + (value - self._highest + half) % self._counter.size - half
        self._highest = max(self._highest, number)
        return number


class StreamUnwrapper:
    """The numbers of several streams, at most `streams_max`."""

    def __init__(self, counter: Counter, near: Mapping[str, int] | None = None, streams_max: int = STREAMS_MAX) -> None:
        self._counter = counter.checked()
        self._streams_max = streams_max
        self._streams = {stream: Unwrapper(counter, number) for stream, number in (near or {}).items()}

    def unwrap(self, stream: str, value: int) -> int:
        """As :meth:`Unwrapper.unwrap`; the number is never below `counter.first`. Raises FrameError."""
        found = self._streams.get(stream)
        if found is None:
            if len(self._streams) >= self._streams_max:
                raise FrameError(f"the source has more than {self._streams_max} streams: raise the limit")
            found = Unwrapper(self._counter)
        number = found.unwrap(value)
        self._streams[stream] = found
        if number < self._counter.first:
            raise FrameError(f"number {value} is from before the first number that was read of its stream")
        return number

    def highest(self) -> dict[str, int]:
        """The highest number of each stream: `near` for another adapter."""
        return {stream: found.highest for stream, found in self._streams.items() if found.highest is not None}
