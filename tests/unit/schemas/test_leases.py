"""The records on `leases`: round trips, and what is refused (G4, G14)."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import RecordError
from schemas.leases import (
    HIGHEST_EPOCH,
    LARGEST_RECORD,
    MOST_SHARDS,
    Claim,
    Claimant,
    LeaseKey,
    Release,
    Standbys,
    decode_lease,
    encode_lease,
)

names = st.text(min_size=1, max_size=255)
keys = st.builds(
    LeaseKey,
    st.just("c"),
    st.integers(0, MOST_SHARDS - 1),
    st.integers(1, HIGHEST_EPOCH),
    st.builds(
        Claimant, names.filter(lambda name: name.encode("utf-8", "ignore").decode() == name), st.integers(0, 2**63 - 1)
    ),
)
values = st.one_of(
    st.builds(Claim, at_us=st.integers(0, 2**63 - 1)),
    st.builds(Release, successor=st.none() | st.text("ab/é\n", min_size=1, max_size=255)),
    st.builds(Standbys, names=st.lists(st.text("ab/é", min_size=1), max_size=8)),
)


@settings(deadline=None)
@given(keys, st.none() | values)
def test_round_trip(key: LeaseKey, value: Claim | Release | Standbys | None) -> None:
    key = key._replace(kind="s" if isinstance(value, Standbys) else "c")
    raw = None if value is None else encode_lease(value)
    assert decode_lease(key.encode(), raw) == (key, value)


@settings(deadline=None)
@given(keys, values, st.data())
def test_every_truncation_and_mutation_is_refused_or_decoded(
    key: LeaseKey, value: Claim | Release | Standbys, data: st.DataObject
) -> None:
    key = key._replace(kind="s" if isinstance(value, Standbys) else "c")
    raw = encode_lease(value)
    with pytest.raises(RecordError):
        decode_lease(key.encode(), raw[: data.draw(st.integers(0, len(raw) - 1))])
    mutated = bytearray(raw)
    mutated[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    changed = bytearray(key.encode())
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for bad_key, bad_value in ((key.encode(), bytes(mutated)), (bytes(changed), raw)):
        with suppress(RecordError):
            decode_lease(bad_key, bad_value)


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"c/0/1/1", b"c/0/1/1/", b"c/0/0/1/a", b"c/00/1/1/a", b"c/-1/1/1/a", b"x/0/1/1/a"),
        *(b"c/65536/1/1/a", b"c/0/9007199254740992/1/a", b"c/0/1/9223372036854775808/a"),
        *(b"c/0/1/1/\xff", b"c/0/1/1/" + b"a" * 256),
    ],
)
def test_a_key_that_is_none_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordError, match=r"key"):
        decode_lease(key, b'{"type":"claim"}')


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"c/0/1/1/a", b'{"type":"claim","v":0}', "version 0 is not 1"),
        (b"c/0/1/1/a", b'{"type":"other"}', "not a lease record"),
        (b"c/0/1/1/a", b'{"type":"standbys","names":[]}', "does not belong"),
        (b"s/0/1/1/a", b'{"type":"claim"}', "does not belong"),
        (b"s/0/1/1/a", b'{"type":"standbys","names":["a","a","a","a","a","a","a","a","a"]}', "not a lease record"),
        (b"c/0/1/1/a", b" " * (LARGEST_RECORD + 1), "larger than"),
        (b"c/0/1/1/a", b"[" * 4_000, "not a lease record"),
    ],
)
def test_a_value_that_is_not_valid_is_refused(key: bytes, value: bytes, problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        decode_lease(key, value)
