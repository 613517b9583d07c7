"""What the merger decides (S3).

Each copy it is given becomes exactly one of Delivered, Late, Duplicate, Expired and Refused: at once, or when what is
before it has come or is lost. Events are structs and not tuples: a Duplicate never equals a Delivered.
"""

from msgspec import Struct

from feeds.merge_inputs import Reason
from feeds.message import Feed, FeedMessage


class Delivered(Struct, frozen=True, gc=False):
    """Next in its source stream."""

    feed: Feed
    message: FeedMessage


class Late(Struct, frozen=True, gc=False):
    """It was reported lost, or what follows it was delivered before. `deliver`: it is to be given to the subscriber,
    marked as late; otherwise it is only counted."""

    feed: Feed
    message: FeedMessage
    deliver: bool


class Duplicate(Struct, frozen=True, gc=False):
    """Dropped: the number was delivered, or is held."""

    feed: Feed
    message: FeedMessage


class Expired(Struct, frozen=True, gc=False):
    """Dropped: so old that nobody remembers whether it was delivered or lost."""

    feed: Feed
    message: FeedMessage


class Refused(Struct, frozen=True, gc=False):
    """Not taken: the limit of source streams, or of administrative messages that wait, is reached."""

    feed: Feed
    message: FeedMessage
    limit: str


class Different(Struct, frozen=True, gc=False):
    """The payload of this copy is not that of the other feed's copy of the same number."""

    feed: Feed
    message: FeedMessage


class Suspected(Struct, frozen=True, gc=False):
    """These numbers are missing for longer than the reorder time."""

    stream: str
    first: int
    last: int


class Recover(Struct, frozen=True, gc=False):
    """A request: read exactly these numbers from the log of `feed`, apply the copies (`from_log`), then
    :class:`feeds.merge_inputs.Searched`."""

    feed: Feed
    stream: str
    first: int
    last: int


class Recovered(Struct, frozen=True, gc=False):
    """A number that was suspected has come after all."""

    feed: Feed
    stream: str
    sequence: int


class Lost(Struct, frozen=True, gc=False):
    """These numbers are given up; reported once, and before anything beyond them is delivered."""

    stream: str
    first: int
    last: int
    reason: Reason


Event = Delivered | Late | Duplicate | Expired | Refused | Different | Suspected | Recover | Recovered | Lost
