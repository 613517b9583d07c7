"""Messages of a feed for tests."""

from feeds.message import FeedMessage, stream_id

STREAM = stream_id("radar", 0)


def copy_of(number: int, payload: bytes = b"") -> FeedMessage:
    """The message of this number, whoever wrote it; its payload is the number if none is given."""
    return FeedMessage(STREAM, number, 0, number, 0, "a", payload or b"%d" % number)
