"""A feed's word that it has passed a number, as a record (S2, S3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.errors import FeedRecordError
from feeds.message import NUMBER_MAX, FeedMessage
from feeds.message import encode as encode_message
from feeds.passed import PassedRecord, decode, decode_either, encode, is_passed

NUMBERS = st.integers(0, NUMBER_MAX)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_records_are_read_as_written(sequence: int, message_sequence: int, read_us: int) -> None:
    record = PassedRecord("radar@1", sequence, message_sequence, read_us, "north")
    key, headers, value = encode(record)
    assert is_passed(headers)
    assert decode(key, headers, value) == record


def test_a_feed_message_is_none() -> None:
    key, headers, value = encode_message(FeedMessage("radar@1", 1, 0, 1, 1, "north", b"x"))
    assert not is_passed(headers)
    with pytest.raises(FeedRecordError):
        decode(key, headers, value)


@pytest.mark.parametrize("header", [b"", b"1;5;1;1;1;a", b"2;5;0;1;1;a", b"1;-5;0;1;1;a"])
def test_malformed_records_are_refused(header: bytes) -> None:
    with pytest.raises(FeedRecordError):
        decode(b"radar@1", [("passed", header)], None)
    with pytest.raises(FeedRecordError):
        decode(b"radar@1", [("passed", b"1;5;0;1;1;a")], b"payload")


def test_either_kind_is_told_by_its_header() -> None:
    message, word = FeedMessage("radar@1", 1, 0, 1, 1, "north", b"x"), PassedRecord("radar@1", 5, 1, 1, "north")
    assert decode_either(*encode_message(message)) == message
    assert decode_either(*encode(word)) == word
    with pytest.raises(FeedRecordError):
        decode_either(b"radar@1", [("other", b"1;5;0;1;1;a")], None)
