"""The feed message and its record: round trips, truncations, mutated bytes, topics and partitions (S2, S3)."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.errors import FeedRecordError
from feeds.message import (
    FEEDS,
    HEADER,
    NUMBER_MAX,
    Feed,
    FeedMessage,
    decode,
    encode,
    epoch_of,
    feed_of_partition,
    name_of,
    partition_of,
    partitions_of,
    sibling_of,
    stream_id,
    topic_of,
)
from schemas.errors import RecordError
from tests.draw import generator

numbers = st.integers(0, NUMBER_MAX)
letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="#+;")
names = st.text(letters, min_size=1, max_size=60)
messages = st.builds(
    FeedMessage, st.builds(stream_id, names, numbers), numbers, numbers, numbers, numbers, names, st.binary(max_size=99)
)
EXAMPLE = FeedMessage(stream_id("radar@north", 3), 7, 0, 9, 1_764_000_000_000_000, "zürich-1", b"\x8d40621d")


@given(messages)
def test_a_message_comes_back_as_it_was(message: FeedMessage) -> None:
    """S2."""
    key, headers, value = encode(message)
    assert decode(key, headers, value) == message
    assert encode(decode(key, headers, value)) == (key, headers, value)


def test_the_record_is_as_documented() -> None:
    """Others read it too: the ledger splits the header by `;`."""
    header = "1;7;0;9;1764000000000000;zürich-1".encode()
    assert encode(EXAMPLE) == (b"radar@north@3", [("feed", header)], b"\x8d40621d")
    assert (name_of(EXAMPLE.stream), epoch_of(EXAMPLE.stream)) == ("radar@north", 3)


def test_every_truncation_is_refused_or_another_message() -> None:
    """Only the adapter's name may end early: nothing follows it."""
    key, [(_, header)], value = encode(EXAMPLE)
    for size in range(len(header) - len("zürich-1".encode()) + 1):
        with pytest.raises(FeedRecordError):
            decode(key, [(HEADER, header[:size])], value)


@pytest.mark.parametrize(
    "header",
    [
        b"2;7;0;9;1;a",
        b"1;07;0;9;1;a",
        b"1;-7;0;9;1;a",
        b"1; 7;0;9;1;a",
        b"1;7_0;0;9;1;a",
        b"1;7;0;9;1;",
        b"1;7;0;9;1",
        b"1;9223372036854775808;0;9;1;a",
        b"1;7;0;9;1;a;b",
        b"1;7;0;9;1;\xff",
        b"1;7;0;9;1;a\n",
        b"",
    ],
)
def test_malformed_headers_are_refused(header: bytes) -> None:
    with pytest.raises(FeedRecordError):
        decode(b"radar@3", [(HEADER, header)], b"")


@pytest.mark.parametrize("key", [None, b"", b"radar", b"radar@", b"@3", b"r#@3", b"r@03", b"r\0@3", b"r@-1", b"\xff@1"])
def test_malformed_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(FeedRecordError):
        decode(key, [(HEADER, b"1;7;0;9;1;a")], b"")


def test_records_with_other_headers_are_refused() -> None:
    good = (HEADER, b"1;7;0;9;1;a")
    for headers in (None, [], [good, good], [("other", good[1])], [(HEADER, None)]):
        with pytest.raises(RecordError):
            decode(b"radar@3", headers, b"")


def test_mutated_headers_are_refused_or_canonical() -> None:
    draws = generator("mutated feed messages")
    key, [(_, header)], value = encode(EXAMPLE)
    for _ in range(2_000):
        changed = bytearray(header)
        for _ in range(draws.randint(1, 3)):
            changed[draws.randrange(len(changed))] ^= draws.randint(1, 255)
        try:
            found = decode(key, [(HEADER, bytes(changed))], value)
        except FeedRecordError:
            continue
        assert encode(found)[1] == [(HEADER, bytes(changed))]


@pytest.mark.parametrize(
    "message",
    [
        EXAMPLE._replace(sequence=-1),
        EXAMPLE._replace(sequence=NUMBER_MAX + 1),
        EXAMPLE._replace(adapter=""),
        EXAMPLE._replace(adapter="a;b"),
        EXAMPLE._replace(adapter="\ud800"),
        EXAMPLE._replace(adapter="a" * 256),
        EXAMPLE._replace(stream="radar"),
    ],
)
def test_fields_that_do_not_fit_are_not_written(message: FeedMessage) -> None:
    with pytest.raises(FeedRecordError):
        encode(message)


@pytest.mark.parametrize("name", ["", "a#", "+", "a\nb", "é" * 128])
def test_names_of_source_streams_can_be_part_of_a_topic(name: str) -> None:
    with pytest.raises(FeedRecordError):
        stream_id(name, 0)


def test_both_feeds_have_a_half_of_the_topic_and_epochs_stay_in_their_partition() -> None:
    """S2: by CRC-32 of the source stream's name."""
    assert topic_of("demo.", "ads-b") == "demo.feed.ads-b"
    with pytest.raises(FeedRecordError, match="feed name"):
        topic_of("", "a/b")
    expected = zlib.crc32(b"radar") % 4
    for epoch in range(3):
        assert partition_of(Feed.ACTIVE, stream_id("radar", epoch), 8) == expected
        assert partition_of(Feed.BACKUP, stream_id("radar", epoch), 8) == 4 + expected
    for partitions in (0, 1, 7):
        with pytest.raises(ValueError, match="even"):
            partition_of(Feed.ACTIVE, stream_id("radar", 0), partitions)


@given(st.integers(1, 50).map(lambda half: 2 * half), st.sampled_from(FEEDS), st.text("abc", min_size=1, max_size=5))
def test_each_feed_has_half_of_the_partitions(partitions: int, feed: Feed, name: str) -> None:
    """S3: readers find a feed's copies where its adapter writes them, and the other feed's in the sibling."""
    stream = stream_id(name, 0)
    partition = partition_of(feed, stream, partitions)
    assert partition in partitions_of(feed, partitions)
    assert feed_of_partition(partition, partitions) is feed
    other = FEEDS[1 - feed]
    assert sibling_of(partition, partitions) == partition_of(other, stream, partitions)
    assert {*partitions_of(feed, partitions), *partitions_of(other, partitions)} == set(range(partitions))
