"""The feed message, its stamps, and its record on Kafka, version 1 (S2).

| part of the record | content                                                                                    |
|--------------------|--------------------------------------------------------------------------------------------|
| topic, partition   | `feed.<name>`; :func:`partition_of`                                                        |
| key                | the source stream id, `name@epoch`, UTF-8                                                  |
| header `feed`      | `version;sequence;part;message sequence;time read;adapter`, ASCII numbers, UTF-8 name      |
| value              | the payload                                                                                |

There is exactly one header. Numbers are decimal, without sign and leading zeros, at most 2^63-1; so Spark can split the
header with its own functions. Numbers are canonical: what decodes is encoded to the same bytes.

The merger decides by (source stream id, sequence), which both adapters of a source agree on. The message sequence
counts what one adapter has written, administrative messages included; the two adapters do not agree on it.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from feeds.errors import FeedRecordError
from schemas.identity import hash_of
from schemas.topics import Topics

VERSION: Final = 1
HEADER: Final = "feed"
NUMBER_MAX: Final = 2**63 - 1
"""The highest number of any field: what Kafka's and Spark's signed integers of 8 bytes hold."""
NAME_BYTES_MAX: Final = 255
"""The most bytes of the name of a source stream or an adapter."""
FEED_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Names of feeds: they are part of a Kafka topic's name."""

_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_FIELDS = re.compile(rb"%d;" % VERSION + rb";".join([_NUMBER] * 4) + rb";([^\x00-\x1f;]{1,%d})" % NAME_BYTES_MAX)
_KEY = re.compile(rb"[^\x00-\x1f#+]{1,%d}@" % NAME_BYTES_MAX + _NUMBER)
_STREAMS_CACHED = 4096

Headers = list[tuple[str, bytes]]


class Feed(IntEnum):
    """One of the two feeds of a source. The words name where an adapter writes; which of the two a subscriber follows
    may change, and the merger treats both alike."""

    ACTIVE = 0
    BACKUP = 1


FEEDS: Final = (Feed.ACTIVE, Feed.BACKUP)


class FeedMessage(NamedTuple):
    """One message of a source, as one adapter read it.

    `stream` is the source stream id (:func:`stream_id`); `sequence` the number of the message in it. `part` is 0 for a
    message of the source. For an administrative message it is k = 1, 2, …: the k-th that follows message `sequence`;
    such a message consumes no number (S4). `message_sequence` counts what this adapter wrote; `adapter` is its name;
    `read_us` the time when it read the message, by its clock, µs since the epoch.
    """

    stream: str
    sequence: int
    part: int
    message_sequence: int
    read_us: int
    adapter: str
    payload: bytes


def stream_id(name: str, epoch: int) -> str:
    """The id of the source stream `name` since a start of its source. A source that begins its numbers anew gets a new
    `epoch`, hence a new id. Raises FeedRecordError for a name that cannot be part of an MQTT topic, or is too long."""
    made = f"{name}@{epoch}"
    checked_stream(made)
    return made


def checked_stream(stream: str) -> str:
    """A source stream id as it is. Raises FeedRecordError if it is none."""
    return _stream_of(_utf8(stream, "the source stream id"))


def name_of(stream: str) -> str:
    """The name in a source stream id."""
    return stream.rpartition("@")[0]


def epoch_of(stream: str) -> int:
    """The epoch in a source stream id."""
    return int(stream.rpartition("@")[2])


def topic_of(prefix: str, feed: str) -> str:
    """The topic of the feed named `feed`; `prefix` is that of all topics. Raises FeedRecordError for names that Kafka
    does not allow."""
    if FEED_NAME.fullmatch(feed) is None:
        raise FeedRecordError(f"feed name {feed!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    return Topics(prefix).feed(feed)


def partitions_of(feed: Feed, partitions: int) -> range:
    """Which of a topic's `partitions` are a feed's: the first half is the active feed's, the second the backup's."""
    half = partitions // len(FEEDS)
    return range(feed * half, (feed + 1) * half)


def feed_of_partition(partition: int, partitions: int) -> Feed:
    """The feed that has a partition."""
    return Feed(partition >= partitions // len(FEEDS))


def sibling_of(partition: int, partitions: int) -> int:
    """The other feed's partition that has the same source streams."""
    return (partition + partitions // len(FEEDS)) % partitions


def partition_of(feed: Feed, stream: str, partitions: int) -> int:
    """The partition of a source stream's copies. Within the feed's half (:func:`partitions_of`), the CRC-32 of the
    stream's name decides. The epoch does not count, so all epochs of a source are in one partition, in order. Raises
    ValueError for an odd number of partitions."""
    half, odd = divmod(partitions, len(FEEDS))
    if odd or half < 1:
        raise ValueError(f"a feed's topic needs an even number of partitions, not {partitions}")
    return feed * half + hash_of(name_of(stream)) % half


def encode(message: FeedMessage) -> tuple[bytes, Headers, bytes]:
    """Key, headers and value of the record. Raises FeedRecordError if a field does not fit."""
    stream, sequence, part, message_sequence, read_us, adapter, payload = message
    key = _utf8(stream, "the source stream id")
    fields = f"{VERSION};{sequence};{part};{message_sequence};{read_us};"
    header = fields.encode() + _utf8(adapter, "the adapter's name")
    _stream_of(key)
    _checked(header)
    return key, [(HEADER, header)], payload


def decode(key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None, value: bytes | None) -> FeedMessage:
    """The message of a record. Raises FeedRecordError for a record that is none. No value is an empty payload."""
    if key is None or headers is None or len(headers) != 1 or headers[0][0] != HEADER:
        raise FeedRecordError(f"a feed message has a key and the one header {HEADER!r}")
    return tuple.__new__(  # hot path
        FeedMessage, (_stream_of(key), *_checked(headers[0][1] or b""), value or b"")
    )


def _checked(raw: bytes) -> tuple[int, int, int, int, str]:
    found = _FIELDS.fullmatch(raw)
    if found is None:
        version = raw.partition(b";")[0]
        if version != b"%d" % VERSION:
            raise FeedRecordError(f"feed message version {version[:20]!r} is not {VERSION}")
        raise FeedRecordError(f"header {HEADER} {raw[:400]!r} is malformed")
    sequence, part, message_sequence, read_us, adapter = found.groups()
    numbers = int(sequence), int(part), int(message_sequence), int(read_us)
    if max(numbers) > NUMBER_MAX:
        raise FeedRecordError(f"header {HEADER} {raw[:400]!r} has a number above 2^63-1")
    try:
        return (*numbers, adapter.decode())
    except UnicodeDecodeError as error:
        raise FeedRecordError(f"the adapter's name {adapter!r} is not well-formed UTF-8") from error


@lru_cache(_STREAMS_CACHED)
def _stream_of(key: bytes) -> str:
    found = _KEY.fullmatch(key)
    if found is None or int(found[1]) > NUMBER_MAX:
        raise FeedRecordError(f"source stream id {key[:300]!r} is not name@epoch, of allowed characters and lengths")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise FeedRecordError(f"source stream id {key!r} is not well-formed UTF-8") from error


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FeedRecordError(f"{what} contains surrogates") from error
