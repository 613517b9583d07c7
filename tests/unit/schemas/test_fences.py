"""Fences on `sessions` and `spool`: round trip, and everything that is not one is refused (G6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RecordError
from schemas.fences import decode_fence, encode_fence, epoch_headers, epoch_of, fence_key
from schemas.leases import HIGHEST_EPOCH, Claimant

EPOCHS = st.integers(1, HIGHEST_EPOCH)
CLAIMANTS = st.builds(Claimant, st.text(min_size=1, max_size=40), st.integers(0, 2**63 - 1))
FENCE = encode_fence(Claimant("gateway", 7))


@given(EPOCHS, CLAIMANTS)
def test_round_trip(epoch: int, claimant: Claimant) -> None:
    assert decode_fence(fence_key(epoch), encode_fence(claimant)) == (epoch, claimant)
    assert decode_fence(fence_key(epoch), None) == (epoch, None)
    assert epoch_of(epoch_headers(epoch)) == epoch


@given(st.integers(0, len(FENCE) - 1))
def test_a_truncated_fence_is_refused(length: int) -> None:
    with pytest.raises(RecordError):
        decode_fence(fence_key(1), FENCE[:length])


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_nothing_else_is_accepted(key: bytes, value: bytes | None) -> None:
    for raw in (key, b"fence/" + key):
        try:
            epoch, _ = decode_fence(raw, value)
        except RecordError:
            continue
        assert fence_key(epoch) == raw


@pytest.mark.parametrize("key", [b"fence/0", b"fence/01", b"fence/-1", b"fence/9007199254740992", b"fence/", b"fence"])
def test_keys_of_no_fence(key: bytes) -> None:
    with pytest.raises(RecordError):
        decode_fence(key, FENCE)


@pytest.mark.parametrize(
    "value", [b'{"name":"x","boot":1,"v":0}', b'{"name":"","boot":1}', b'{"name":"x","boot":-1}', b" " * 5_000 + FENCE]
)
def test_values_of_no_fence(value: bytes) -> None:
    with pytest.raises(RecordError):
        decode_fence(fence_key(1), value)


@pytest.mark.parametrize(
    "headers", [None, [], [("other", b"1")], [("epoch", b"x")], [("epoch", None)], [("epoch", b"9" * 30)]]
)
def test_what_has_no_valid_epoch_is_of_epoch_0(headers: list[tuple[str, bytes | None]] | None) -> None:
    """So behind any fence it is void."""
    assert epoch_of(headers) == 0


def test_without_others_there_is_no_header() -> None:
    assert epoch_headers(0) is None
