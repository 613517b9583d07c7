"""Records of a spool that a later release has written are never taken for malformed ones, which are left out (R5, G14;
vernemq#2488)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.spool_records import Record, batch_of, records_of
from gateway.shard.spool_versions import version_in
from schemas.errors import NewerVersion, RecordError
from tests.unit.gateway.shard.test_spool_records import MARKER, full_batch

RECORDS = [(key, value) for key, value in records_of(full_batch(), MARKER) if value is not None]
LATER = st.integers(2, 1_000)
REST = st.lists(st.integers(0, 9) | st.text() | st.none(), max_size=3)


def of_version(value: bytes, version: int, rest: list[Any]) -> bytes:
    """The value as a later release may write it: another version, and other fields behind it."""
    found = msgspec.msgpack.decode(value)
    if isinstance(found, dict):
        return msgspec.msgpack.encode({**found, "version": version, "positions": rest})
    at = 1 if isinstance(found[0], str) else 0
    return msgspec.msgpack.encode([*found[:at], version, *rest])


def left_out(record: Record) -> list[RecordError]:
    errors: list[RecordError] = []
    batch_of([record], lambda _, error: errors.append(error))
    return errors


@given(st.sampled_from(RECORDS), LATER, REST)
def test_a_later_version_is_not_left_out(record: tuple[bytes, bytes], version: int, rest: list[Any]) -> None:
    with pytest.raises(NewerVersion):
        left_out((record[0], of_version(record[1], version, rest)))


def test_a_later_kind_is_not_left_out() -> None:
    for value in ([1, "x"], ["tag", 1], {"version": 1}):
        with pytest.raises(NewerVersion):
            left_out((b"z/1", msgspec.msgpack.encode(value)))


@given(st.sampled_from(RECORDS), st.binary(max_size=40))
def test_what_says_no_later_version_is_left_out(record: tuple[bytes, bytes], value: bytes) -> None:
    if version_in(value) <= 1:
        assert len(left_out((record[0], value))) <= 1
    assert left_out((b"z/1", b""))
    assert left_out((b"z", None))


@given(st.sampled_from(RECORDS), st.lists(st.integers(0, 9) | st.text(), min_size=1, max_size=3))
def test_fields_that_a_later_release_adds_are_ignored(record: tuple[bytes, bytes], more: list[Any]) -> None:
    key, value = record
    found = msgspec.msgpack.decode(value)
    added = {**found, "later": more} if isinstance(found, dict) else [*found, *more]
    assert batch_of([(key, msgspec.msgpack.encode(added))]) == _same_but_kept(key, value, added)


def _same_but_kept(key: bytes, value: bytes, added: Any) -> object:
    """Sources and bundles are kept as they are, with what was added."""
    batch, marker = batch_of([(key, value)])
    for kept in (batch.sources, batch.bundles):
        for name in kept:
            kept[name] = msgspec.msgpack.encode(added)
    return batch, marker


@given(st.sampled_from(RECORDS), LATER)
def test_only_the_last_record_of_a_key_counts(record: tuple[bytes, bytes], version: int) -> None:
    later = (record[0], of_version(record[1], version, []))
    assert batch_of([later, record]) == batch_of([record])
    with pytest.raises(NewerVersion):
        batch_of([record, later])
