"""Who may speak about share groups for a shard (G6, Q7; R6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.share_messages import Announced, Sender, decode, encode, sender_of
from gateway.shard.share_senders import ShareSenders
from schemas.envelope import SENDER_HEADER, SHARE_HEADER
from schemas.errors import RecordError
from schemas.leases import HIGHEST_EPOCH

SHARDS = 3


@given(st.lists(st.tuples(st.integers(0, SHARDS - 1), st.integers(1, 5))))
def test_only_the_highest_epoch_of_a_shard_counts(said: list[tuple[int, int]]) -> None:
    """Epochs of what counts never fall, shard by shard; nothing of the highest is dropped."""
    senders, highest = ShareSenders(SHARDS), [0] * SHARDS
    for shard, epoch in said:
        assert senders.counts(Sender(shard, epoch)) == (epoch >= highest[shard])
        highest[shard] = max(highest[shard], epoch)
    assert [senders.highest(shard) for shard in range(SHARDS)] == highest


def test_a_receiver_that_starts_knows_fences() -> None:
    senders = ShareSenders(SHARDS)
    senders.has_epoch(1, 4)
    assert not senders.counts(Sender(1, 3))
    assert senders.counts(Sender(1, 4))
    assert senders.counts(Sender(2, 1))


def test_what_was_written_before_somebody_speaks_directly_is_void() -> None:
    """It comes later than what was said directly; another owner of the shard speaks by the log again."""
    senders = ShareSenders(SHARDS)
    assert senders.counts(Sender(1, 4))
    assert senders.counts(Sender(1, 4), is_direct=True)
    assert not senders.counts(Sender(1, 4))
    assert senders.counts(Sender(1, 4), is_direct=True)
    assert senders.counts(Sender(2, 4))
    assert senders.counts(Sender(1, 5))
    assert not senders.counts(Sender(1, 4), is_direct=True)


def test_who_does_not_say_who_it_is_counts() -> None:
    """As before, without a cluster or of an earlier version."""
    senders = ShareSenders(SHARDS)
    senders.has_epoch(1, 4)
    assert senders.counts(None)
    assert senders.counts(Sender(1, 0))


def test_without_a_cluster_there_is_no_header() -> None:
    assert [name for name, _ in encode(Announced(1), Sender(1, 0))[1]] == [SHARE_HEADER]


@given(st.integers(0, 999_999), st.integers(1, HIGHEST_EPOCH))
def test_a_sender_is_read_as_it_is_written(shard: int, epoch: int) -> None:
    value, headers = encode(Announced(1), Sender(shard, epoch))
    assert sender_of(headers) == Sender(shard, epoch)
    assert decode(value, headers) == Announced(1)


@pytest.mark.parametrize(
    "raw", [b"", b"1", b"1;", b"1;0", b";1", b"-1;1", b"1;-1", b"1;1;1", b"x;1", b"1;" + b"9" * 40]
)
def test_a_malformed_sender_is_an_error(raw: bytes) -> None:
    with pytest.raises(RecordError, match="malformed"):
        sender_of([(SHARE_HEADER, b"1"), (SENDER_HEADER, raw)])


def test_a_shard_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(RecordError, match="there are 3"):
        ShareSenders(SHARDS).counts(Sender(SHARDS, 1))
