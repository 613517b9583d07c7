"""What the merger is given, in one order; writing these down is enough to compute the same decisions again (S3).

Times are no inputs: they only decide what :meth:`feeds.merge.Merger.proposals` proposes. A proposal becomes a decision
when it is applied.
"""

from enum import StrEnum
from typing import NamedTuple

from feeds.message import Feed, FeedMessage


class Reason(StrEnum):
    """Why a number is given up."""

    PASSED = "passed"  # each feed has passed it, has been searched for it, or is dead
    DEADLINE = "deadline"
    FULL = "full"  # too much waits behind it
    ENDED = "ended"  # the source stream has ended


class Copy(NamedTuple):
    """A message came on `feed`; or, `from_log`, was found in its log, which says nothing about the numbers before."""

    feed: Feed
    message: FeedMessage
    from_log: bool = False


class Begin(NamedTuple):
    """The source stream begins with `sequence`; the subscriber has all before it, or wants none of it."""

    stream: str
    sequence: int


class Passed(NamedTuple):
    """`feed` says that it brings nothing more up to `through`; a heartbeat of an adapter whose source is quiet."""

    feed: Feed
    stream: str
    through: int


class Searched(NamedTuple):
    """The log of `feed` was read from `first` to `last`, and beyond; what it has of it came as copies before. A log
    that does not reach beyond `last` yet is not searched: ask again."""

    feed: Feed
    stream: str
    first: int
    last: int


class Suspect(NamedTuple):
    """Decision of the timer: what is missing up to `through` is a gap, and not merely out of order."""

    stream: str
    through: int


class GiveUp(NamedTuple):
    """Decision of the timer: what is missing up to `through` is lost."""

    stream: str
    through: int
    reason: Reason


class Dead(NamedTuple):
    """`feed` is declared dead: nothing more is expected of it."""

    feed: Feed


class Alive(NamedTuple):
    """`feed` is declared alive again."""

    feed: Feed


class Forget(NamedTuple):
    """The source stream has ended: its source has a new epoch. What is missing is lost, what is held is delivered;
    copies of this epoch and earlier ones that come later are dropped as expired."""

    stream: str


Decision = Suspect | GiveUp
Input = Copy | Begin | Passed | Searched | Suspect | GiveUp | Dead | Alive | Forget
