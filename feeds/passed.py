"""A feed's word that it brings nothing more up to a number; its record on `feed.<name>`, version 1 (S2, S3).

Written for numbers that bring no message: the source has announced or used them up (a heartbeat of MoldUDP64, a frame
that is malformed). It is on the partition of the source stream's copies, behind all of them that it speaks of, so a
reader never learns of it too early. The record has the key of a feed message, no value, and one header:

    passed: version;sequence;0;message sequence;time read;adapter

Its fields are those of :mod:`feeds.message`. `sequence` is the highest number that will not come any more; `message
sequence` how many messages the adapter has written.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from feeds.errors import FeedRecordError
from feeds.message import HEADER as FEED_HEADER
from feeds.message import FeedMessage, Headers
from feeds.message import decode as decode_message
from feeds.message import encode as encode_message

HEADER: Final = "passed"


class PassedRecord(NamedTuple):
    """Nothing more up to `sequence` of `stream`; the other fields are as in :class:`feeds.message.FeedMessage`."""

    stream: str
    sequence: int
    message_sequence: int
    read_us: int
    adapter: str


def encode(record: PassedRecord) -> tuple[bytes, Headers, None]:
    """Key, headers and value of the record. Raises FeedRecordError if a field does not fit."""
    stream, sequence, message_sequence, read_us, adapter = record
    key, headers, _ = encode_message(FeedMessage(stream, sequence, 0, message_sequence, read_us, adapter, b""))
    return key, [(HEADER, headers[0][1])], None


def decode_either(
    key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None, value: bytes | None
) -> FeedMessage | PassedRecord:
    """What a record on the topic of a feed is, of both kinds. Raises FeedRecordError for a record that is neither."""
    return (decode if is_passed(headers) else decode_message)(key, headers, value)


def is_passed(headers: Sequence[tuple[str, bytes | None]] | None) -> bool:
    """Whether a record is one of these, and not a feed message."""
    return bool(headers) and headers is not None and headers[0][0] == HEADER


def decode(key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None, value: bytes | None) -> PassedRecord:
    """The feed's word of a record. Raises FeedRecordError for a record that is none."""
    if value is not None or headers is None or len(headers) != 1 or headers[0][0] != HEADER:
        raise FeedRecordError(f"a feed's word that it has passed a number has the one header {HEADER!r}, and no value")
    message = decode_message(key, [(FEED_HEADER, headers[0][1])], None)
    if message.part:
        raise FeedRecordError(f"header {HEADER} is about a message of the source, not about part {message.part}")
    return PassedRecord(message.stream, message.sequence, message.message_sequence, message.read_us, message.adapter)
