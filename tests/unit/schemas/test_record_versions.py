"""Records between gateways of two releases: an earlier one ignores fields that it does not know, and never takes a
later version for nothing (R5, G14; vernemq#2488)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import session_log
from schemas.cluster_topics import Fences, decode_fences, encode_fences
from schemas.envelope import Incarnation, Meta
from schemas.errors import NewerVersion, RecordError
from schemas.fences import UNKNOWN, decode_fence, encode_fence, fence_key
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys, decode_lease, encode_lease
from schemas.members import OLDEST_RECORDS, RECORDS, Heartbeat, decode_heartbeat

LATER = st.integers(2, 1_000)
FIELDS = st.dictionaries(st.sampled_from(["later", "owner2", "zz"]), st.integers() | st.text() | st.none(), min_size=1)
ME = Claimant("gateway", 7)
SESSIONS: list[tuple[str, session_log.Record]] = [
    ("o", session_log.SessionOpened("c", 60, 2, None, None, 5)),
    ("s", session_log.Subscribed([])),
    ("w", session_log.WindowRecord([], [3], 4)),
    ("g", session_log.GroupRecord(session_log.SettledRecord(), [], [], 5)),
    ("m", session_log.MemberRecord(1, 2, session_log.SubscriptionRecord("a", 1, False, False, 0, None, 0, {}))),
]


def changed(raw: bytes, fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(raw), **fields})


# -- fields that a later release adds ----------------------------------------------------------------------------------


@given(FIELDS, st.sampled_from([Claim(at_us=1), Release(successor="b"), Standbys(names=["a", "b"])]))
def test_leases_with_more_fields_say_the_same(fields: dict[str, Any], value: LeaseValue) -> None:
    key = LeaseKey("s" if isinstance(value, Standbys) else "c", 1, 2, ME)
    assert decode_lease(key.encode(), changed(encode_lease(value), fields)) == (key, value)


@given(FIELDS)
def test_heartbeats_with_more_fields_say_the_same(fields: dict[str, Any]) -> None:
    heartbeat = Heartbeat(boot=1, seq=2, state="up", at_us=3)
    assert decode_heartbeat(b"a", changed(msgspec.json.encode(heartbeat), fields)) == ("a", heartbeat)


def test_a_heartbeat_of_before_the_versions_reads_the_first_one() -> None:
    raw = b'{"v":1,"boot":1,"seq":2,"state":"up","at_us":3,"reads":1}'
    assert (decode_heartbeat(b"a", raw)[1].reads, decode_heartbeat(b"a", raw)[1].reads_to) == (1, 1)
    assert OLDEST_RECORDS <= RECORDS


@given(FIELDS)
def test_fences_with_more_fields_say_the_same(fields: dict[str, Any]) -> None:
    assert decode_fence(fence_key(3), changed(encode_fence(ME), fields)) == (3, ME)
    fences = Fences(1, "a", 2, [(0, 3)])
    assert decode_fences(changed(encode_fences(fences), fields)) == fences


@given(FIELDS, st.sampled_from(SESSIONS))
def test_session_records_with_more_fields_say_the_same(
    fields: dict[str, Any], of: tuple[str, session_log.Record]
) -> None:
    kind, record = of
    assert session_log.decode(kind, changed(session_log.encode(record), fields)) == record


@given(st.lists(st.sampled_from([b"", b"1", b"x.y"]), min_size=1, max_size=3), st.none() | st.integers(1, 9))
def test_the_header_meta_with_more_fields_says_the_same(more: list[bytes], epoch: int | None) -> None:
    meta = Meta(2, "", None, 5, 6, Incarnation(1, 2), None, None, epoch)
    raw = b";".join(
        [b"1;2;;;5;6", str(meta.session).encode(), b"", b"", b"" if epoch is None else b"%d" % epoch, *more]
    )
    assert Meta.decode(raw) == meta


# -- later versions ----------------------------------------------------------------------------------------------------


@given(LATER, FIELDS)
def test_a_later_claim_counts_for_its_claimant(version: int, fields: dict[str, Any]) -> None:
    """G4: all gateways agree on the owner, whatever else the record says."""
    key = LeaseKey("c", 1, 2, ME)
    for raw in (encode_lease(Claim()), b'{"type":"claim"}', b'{"type":"another"}', b'{"type":"claim","at_us":"text"}'):
        assert decode_lease(key.encode(), changed(raw, {**fields, "v": version})) == (key, Claim())
    assert decode_lease(key.encode(), changed(b'{"type":"release"}', {"v": version})) == (key, Release())


@given(LATER)
def test_later_standbys_say_that_the_fences_are_in_force(version: int) -> None:
    key = LeaseKey("s", 1, 2, ME)
    raw = changed(b'{"type":"standbys","names":"in another form"}', {"v": version})
    assert decode_lease(key.encode(), raw) == (key, Standbys(names=[]))


@given(LATER, FIELDS)
def test_a_later_fence_counts_for_its_epoch(version: int, fields: dict[str, Any]) -> None:
    """G6: whoever has lost the shard learns it."""
    assert decode_fence(fence_key(3), changed(b"{}", {**fields, "v": version})) == (3, UNKNOWN)


@pytest.mark.parametrize(("kind", "record"), SESSIONS, ids=[kind for kind, _ in SESSIONS])
@pytest.mark.parametrize(
    "fields", [{}, {"since": "text", "subscriptions": 3, "outgoing": 1, "settled": 2, "epoch": ""}]
)
def test_later_session_records_are_told_from_malformed_ones(
    kind: str, record: session_log.Record, fields: dict[str, Any]
) -> None:
    with pytest.raises(NewerVersion):
        session_log.decode(kind, changed(session_log.encode(record), {**fields, "version": 9}))


def test_a_later_kind_of_session_record_is_told_from_a_malformed_one() -> None:
    with pytest.raises(NewerVersion):
        session_log.decode("z", b'{"version":1}')
    for raw in (b"", b"{}", b"[1]", b'{"version":"1"}', b"\xff"):
        with pytest.raises(RecordError) as raised:
            session_log.decode("z", raw)
        assert not isinstance(raised.value, NewerVersion)


@pytest.mark.parametrize("raw", [b'{"v":0}', b'{"v":"2"}', b"[2]", b"", b"\xff\xff", b'{"v":null}'])
def test_what_says_no_version_is_malformed_and_not_later(raw: bytes) -> None:
    with pytest.raises(RecordError):
        decode_lease(LeaseKey("c", 1, 2, ME).encode(), raw)
    with pytest.raises(RecordError):
        decode_fence(fence_key(3), raw)
