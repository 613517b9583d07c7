"""The merger's state as values, to be stored with the subscriber's own position (S3).

Times are not in it: waiting starts anew where it is restored. Everything is tuples, texts, numbers and bytes, so any
codec of NamedTuples stores it.
"""

from typing import NamedTuple

from feeds.message import FeedMessage


class GapState(NamedTuple):
    """A range that is missing; `searched` has a bit for each feed whose log was searched."""

    first: int
    last: int
    suspected: bool
    searched: int


class StreamState(NamedTuple):
    """One source stream. `end`: one above the highest number seen; `first`, `highest`: what each feed has brought, -1
    for nothing; `lost`: ranges, and the `horizon` below which they are forgotten; `held`: what waits behind gaps, with
    its feed; `digests`: of copies that wait for their second; `parts`: the administrative messages that were taken,
    with digests, and the horizon below which they are forgotten."""

    stream: str
    end: int
    first: tuple[int, ...]
    highest: tuple[int, ...]
    gaps: tuple[GapState, ...]
    lost: tuple[tuple[int, int], ...]
    horizon: int
    held: tuple[tuple[int, FeedMessage], ...]
    digests: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int, int], ...]
    parts_horizon: int


class MergerState(NamedTuple):
    """All source streams; which feeds are dead; the names of sources with the last epoch that was forgotten."""

    streams: tuple[StreamState, ...]
    dead: tuple[bool, ...]
    ended: tuple[tuple[str, int], ...]
