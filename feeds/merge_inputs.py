"""What the merger is given, in one order; writing these down is enough to compute the same decisions again (S3).

Times are no inputs: they only decide what :meth:`feeds.merge.Merger.proposals` proposes. A proposal becomes a decision
when it is applied.
"""

from enum import StrEnum

from msgspec import Struct

from feeds.message import Feed, FeedMessage


class Reason(StrEnum):
    """Why a number is given up."""

    PASSED = "passed"  # each feed has passed it, has been searched for it, or is dead
    DEADLINE = "deadline"
    FULL = "full"  # too much waits behind it
    ENDED = "ended"  # the source stream has ended


class Copy(Struct, frozen=True, gc=False):
    """A message came on `feed`; or, `from_log`, was found in its log, which says nothing about the numbers before."""

    feed: Feed
    message: FeedMessage
    from_log: bool = False


class Begin(Struct, frozen=True, gc=False):
    """The source stream begins with `sequence`; the subscriber has all before it, or wants none of it."""

    stream: str
    sequence: int


class Passed(Struct, frozen=True, gc=False):
    """`feed` says that it brings nothing more up to `through`; a heartbeat of an adapter whose source is quiet."""

    feed: Feed
    stream: str
    through: int


class Repositioned(Struct, frozen=True, gc=False):
    """`feed` is read on from another position in its log, or no longer. So it has passed nothing that is missing now or
    opens later, until it has brought numbers of `stream` again: its log is to be searched for what is before these."""

    feed: Feed
    stream: str


class Searched(Struct, frozen=True, gc=False):
    """The log of `feed` was read from `first` to `last`, and beyond; what it has of it came as copies before. A log
    that does not reach beyond `last` yet is not searched: ask again."""

    feed: Feed
    stream: str
    first: int
    last: int


class Suspect(Struct, frozen=True, gc=False):
    """Decision of the timer: what is missing up to `through` is a gap, and not merely out of order."""

    stream: str
    through: int


class GiveUp(Struct, frozen=True, gc=False):
    """Decision of the timer: what is missing up to `through` is lost."""

    stream: str
    through: int
    reason: Reason


class Dead(Struct, frozen=True, gc=False):
    """`feed` is declared dead: nothing more is expected of it."""

    feed: Feed


class Alive(Struct, frozen=True, gc=False):
    """`feed` is declared alive again."""

    feed: Feed


class Forget(Struct, frozen=True, gc=False):
    """The source stream has ended: its source has a new epoch. What is missing is lost, what is held is delivered;
    copies of this epoch and earlier ones that come later are dropped as expired."""

    stream: str


Decision = Suspect | GiveUp
Input = Copy | Begin | Passed | Repositioned | Searched | Suspect | GiveUp | Dead | Alive | Forget
