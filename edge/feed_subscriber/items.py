"""What a subscriber of a feed is given: messages, and what happened to the stream, in one order (S3).

`ordinal` counts the items of one run from 1: committing an item commits all with lower ordinals.
"""

from typing import Literal

from msgspec import Struct

from schemas.feed_words import Slot


class FeedDelivery(Struct, frozen=True, kw_only=True, gc=False):
    """A message of source stream `stream` (`name@epoch`). `part` is 0, or k for the k-th administrative message after
    `sequence`. `read_us`: when `adapter` read it, by its clock, µs since the epoch. `late`: it was reported lost, or
    what follows was given before."""

    ordinal: int
    stream: str
    sequence: int
    part: int
    payload: bytes
    read_us: int
    adapter: str
    late: bool = False


class Gap(Struct, frozen=True, kw_only=True, gc=False):
    """`first` to `last` are missing for longer than the reorder time. They are searched for; what becomes of each
    follows: a message, or :class:`Lost`."""

    ordinal: int
    stream: str
    first: int
    last: int


class Recovered(Struct, frozen=True, kw_only=True, gc=False):
    """A number of a gap has come; its message follows."""

    ordinal: int
    stream: str
    sequence: int


class Lost(Struct, frozen=True, kw_only=True, gc=False):
    """`first` to `last` are given up. `reason`: `passed` (neither feed has them), `deadline`, `full` (too much waited
    behind them), `ended` (the source stream has ended), `gateway` (they were missing in the merged stream)."""

    ordinal: int
    stream: str
    first: int
    last: int
    reason: str


class Different(Struct, frozen=True, kw_only=True, gc=False):
    """`adapter` has another payload for a message than the one that was given before."""

    ordinal: int
    stream: str
    sequence: int
    part: int
    adapter: str


class Switched(Struct, frozen=True, kw_only=True, gc=False):
    """Something changed about the slots. `what`: `dead`: the `adapter` of `slot` is silent or has stopped; `alive`: one
    writes there (again); `assigned`: `slot` is the active stream from now on, because of `reason`; `read`: in mode
    cold, the copies of `slot` are read now."""

    ordinal: int
    slot: Slot
    what: Literal["dead", "alive", "assigned", "read"]
    adapter: str = ""
    reason: str = ""


class Ended(Struct, frozen=True, kw_only=True, gc=False):
    """Both feeds have gone on to a newer epoch of the source: nothing more comes of `stream`."""

    ordinal: int
    stream: str


FeedItem = FeedDelivery | Gap | Recovered | Lost | Different | Switched | Ended
