"""The copy of a feed message that an adapter writes to `ingress`, for plain MQTT subscribers (S2, S3).

Destination `feeds/<name>/<source stream id>`; sender the slot's, not the adapter's, so that an adapter that takes over
a slot writes to the same partition; the stamps in the header `meta`, as :class:`schemas.envelope.FeedMark`. The message
id is derived from the sender and the number: a copy that is written again has the same id, and the two adapters' copies
of a message have two. QoS is 2, so that a subscriber's own decides. It is never retained.
"""

from typing import Final, NamedTuple

from feeds.errors import FeedRecordError
from feeds.message import FEED_NAME, Feed, FeedMessage, checked_stream, encode
from schemas.envelope import NO_PROPERTIES, FeedMark, Headers, Meta, ingress_headers
from schemas.feed_topics import feed_of, feed_sender, feed_topic
from schemas.identity import derived_message_id, partition_of

QOS: Final = 2


class IngressCopy(NamedTuple):
    """`partition`, `key`, `value` and `headers` of a record on `ingress`."""

    partition: int
    key: bytes
    value: bytes
    headers: Headers


def ingress_copy(name: str, slot: Feed, message: FeedMessage, accepted_us: int, partitions: int) -> IngressCopy:
    """The record of a message of the feed `name`; `accepted_us`: when it is written, µs since the epoch, by the
    writer's clock; `partitions` of `ingress`. Raises FeedRecordError if a field does not fit."""
    if FEED_NAME.fullmatch(name) is None:
        raise FeedRecordError(f"feed name {name!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    encode(message)  # checks every field
    sender = feed_sender(name, slot)
    mark = FeedMark(slot, message.sequence, message.part, message.message_sequence, message.read_us, message.adapter)
    message_id = derived_message_id(sender, f"{message.sequence};{message.part};{message.stream}")
    meta = Meta(QOS, "", None, accepted_us, None, None, None, mark)
    headers = ingress_headers(message_id, sender, meta, NO_PROPERTIES)
    topic = feed_topic(name, message.stream).encode()
    return IngressCopy(partition_of(sender, partitions), topic, message.payload, headers)


def marked_message(topic: str, payload: bytes, mark: FeedMark) -> tuple[str, FeedMessage]:
    """The name of the feed, and the message, of a record with a mark. Raises FeedRecordError if they contradict each
    other, or a field is not allowed."""
    found = feed_of(topic)
    if found is None or FEED_NAME.fullmatch(found[0]) is None:
        raise FeedRecordError(f"the topic {topic[:300]!r} of a feed's copy is not feeds/<name>/<source stream id>")
    name, stream = found
    _, sequence, part, message_sequence, read_us, adapter = mark
    return name, FeedMessage(checked_stream(stream), sequence, part, message_sequence, read_us, adapter, payload)
