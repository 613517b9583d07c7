"""The stored form of the merger's state of a source stream: MessagePack, versioned and limited (S3).

A record is `[version, state]`, where the state is the array of :class:`feeds.merge_state.StreamState`. Whoever reads
one may have a damaged file, so everything that the merger relies on is checked here: lengths, ranges of numbers, and
that ranges are in order and disjoint.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from feeds.errors import FeedRecordError, FeedStateError
from feeds.merge_settings import MergeSettings
from feeds.merge_state import StreamState
from feeds.message import FEEDS, NUMBER_MAX, FeedMessage, checked_stream
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1
RECORD_BYTES_MAX: Final = 128 << 20
"""The largest record that is read: all that the merger may hold, and what it remembers."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
_decode_state: Final = msgspec.msgpack.Decoder(StreamState).decode


def encode_state(state: StreamState) -> bytes:
    """The record of a source stream's state."""
    return _encode((VERSION, state))


def decode_state(raw: bytes, settings: MergeSettings) -> StreamState:
    """The state of a record. Raises FeedStateError if it is damaged, of another version, or exceeds the limits of
    `settings`."""
    if len(raw) > RECORD_BYTES_MAX:
        raise FeedStateError(f"a state of {len(raw)} bytes is larger than {RECORD_BYTES_MAX}")
    try:
        version, content = _decode(raw)
        if version != VERSION:
            raise FeedStateError(f"the state has version {version}, but this program reads version {VERSION}")
        state = _decode_state(content)
        checked_stream(state.stream)
    except (*UNDECODABLE, FeedRecordError) as error:
        raise FeedStateError(f"the state is damaged: {error}") from error
    problem = _problem(state, settings)
    if problem is not None:
        raise FeedStateError(f"the state of {state.stream} is damaged: {problem}")
    return state


def _problem(state: StreamState, settings: MergeSettings) -> str | None:
    """What is wrong with it, if anything."""
    ranges = [(one.first, one.last) for one in state.gaps]
    limits = (
        (len(state.gaps), settings.gaps + 1, "gaps"),
        (len(state.lost), settings.lost_ranges, "lost ranges"),
        (len(state.held), settings.held_messages + settings.administrative, "held messages"),
        (len(state.digests), settings.compared, "digests"),
        (len(state.parts), settings.administrative, "administrative messages"),
    )
    for count, most, what in limits:
        if count > most:
            return f"{count} {what} are more than {most}"
    if len(state.first) != len(FEEDS) or len(state.highest) != len(FEEDS):
        return f"it is not of {len(FEEDS)} feeds"
    if not all(-1 <= number <= NUMBER_MAX for number in state.highest):
        return "a feed's numbers are out of range"
    # A feed that has passed the highest number, and brought nothing, begins one above.
    if not all(-1 <= number <= NUMBER_MAX + 1 for number in state.first):
        return "where a feed begins is out of range"
    if not all(0 <= number <= NUMBER_MAX + 1 for number in (state.end, state.horizon, state.parts_horizon)):
        return "a number is out of range"
    if not (_are_in_order(ranges, state.end) and _are_in_order(state.lost, state.end)):
        return "ranges are out of order, or overlap"
    if not all(feed in FEEDS and message.stream == state.stream for feed, message in state.held):
        return "it holds a message of another feed or source stream"
    if not all(_is_place(message) and message.sequence < state.end for _, message in state.held):
        return "a held message has a number that is out of range"
    if not all(0 <= number < state.end for number, _ in state.digests):
        return "a digest has a number that is out of range"
    if not all(0 <= number <= NUMBER_MAX and part > 0 for number, part, _ in state.parts):
        return "an administrative message has a number that is out of range"
    return None


def _is_place(message: FeedMessage) -> bool:
    return message.sequence >= 0 and message.part >= 0


def _are_in_order(ranges: Iterable[tuple[int, int]], end: int) -> bool:
    """Ascending and disjoint, and below `end`."""
    next_number = 0
    for first, last in ranges:
        if not next_number <= first <= last < end:
            return False
        next_number = last + 1
    return True
