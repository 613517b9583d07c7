"""Records between processes: envelope, events, session log, identifiers: round trips, and what is malformed (M9)."""

import contextlib
import time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.messages import message_of
from schemas import events, session_log
from schemas.envelope import (
    BUNDLE_WINDOW,
    EVERYONE,
    INGRESS_HEADERS,
    ROUTED,
    BundleMark,
    FeedMark,
    Incarnation,
    Instruction,
    Meta,
    ingress_headers,
)
from schemas.errors import RecordError
from schemas.identity import hash_of, inbox_of, new_message_id, partition_of, shard_of

DEEP = b'{"v":1,"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
number = st.integers(0, 2**53)
word = st.text(max_size=20)
stamp = st.integers(0, 2**63 - 1)
adapter = st.text(
    st.characters(exclude_characters=";", min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=60
)
metas = st.builds(
    Meta,
    qos=st.integers(0, 2),
    flags=st.sampled_from(["", "r"]),
    expires=st.none() | st.integers(1, 2**53),
    accepted=number,
    seq=st.none() | st.integers(1, 65_535),
    session=st.none() | st.builds(Incarnation, number, number),
    bundle=st.none()
    | st.builds(
        lambda store, low, ahead, is_envelope: BundleMark(store, low + ahead, low, is_envelope),
        *(st.integers(0, 2**64 - 1), number, st.integers(0, BUNDLE_WINDOW - 1), st.booleans()),
    ),
    feed=st.none() | st.builds(FeedMark, st.integers(0, 1), stamp, stamp, stamp, stamp, adapter),
    epoch=st.none() | stamp,
)
instructions = st.builds(
    Instruction,
    partition=number,
    offset=number,
    number=st.integers(0, 999),
    limit=st.none() | st.integers(1_000, 2_000),
    appended=number,
    scope=st.sampled_from([ROUTED, EVERYONE]),
)
wills = st.builds(
    session_log.WillRecord, word, st.binary(), st.integers(0, 2), st.booleans(), st.binary(), number, st.none() | number
)
subscriptions = st.builds(
    session_log.SubscriptionRecord,
    filter=word,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
    identifier=st.none() | number,
    effective_ms=number,
    ingress_from=st.dictionaries(st.integers(0, 99), number, max_size=3),
    group_since=number,
    group_born_us=number,
)
outgoing = st.builds(session_log.OutgoingRecord, st.integers(0, 65_535), number, number, st.booleans())
lent = st.builds(
    session_log.LentRecord, st.integers(0, 65_535), number, number, st.booleans(), client=word, born_us=number
)
offsets = st.dictionaries(st.integers(0, 99), number, max_size=3)
records: st.SearchStrategy[Any] = st.one_of(
    st.builds(session_log.SessionOpened, word, number, number, st.none() | number, st.none() | wills, number),
    st.builds(session_log.Subscribed, st.lists(subscriptions, max_size=3)),
    st.builds(
        session_log.WindowRecord,
        st.lists(outgoing, max_size=3),
        st.lists(st.integers(1, 65_535)),
        st.integers(-1),
        st.builds(session_log.SettledRecord, offsets, offsets, number),
        st.lists(st.tuples(number, number), max_size=3),
    ),
    st.builds(session_log.MemberRecord, number, number, subscriptions),
    st.builds(
        session_log.GroupRecord,
        st.builds(session_log.SettledRecord, offsets, offsets, number),
        st.lists(st.tuples(number, number), max_size=3),
        st.lists(st.tuples(number, number), max_size=3),
        number,
        st.lists(st.builds(session_log.AssignedRecord, number, number, number, word, number, number), max_size=3),
        st.lists(lent, max_size=3),
    ),
)


@given(metas, instructions)
def test_envelope_round_trips(meta: Meta, instruction: Instruction) -> None:
    """R3, G8."""
    assert Meta.decode(meta.encode()) == meta
    assert Instruction.decode(instruction.encode()) == instruction
    assert meta.retain == ("r" in meta.flags)


@given(metas)
def test_the_short_way_to_write_meta_writes_the_same(meta: Meta) -> None:
    plain = Meta(*meta[:4], None)
    assert Meta.encode_plain(*plain[:4]) == plain.encode()


@given(st.binary() | metas.map(Meta.encode).flatmap(lambda raw: st.integers(0, len(raw)).map(lambda n: raw[:n])))
def test_a_malformed_meta_is_a_record_error(raw: bytes) -> None:
    try:
        meta = Meta.decode(raw)
    except RecordError:
        return
    assert meta.qos in (0, 1, 2)


@given(
    st.binary()
    | instructions.map(Instruction.encode).flatmap(lambda raw: st.integers(0, len(raw)).map(lambda n: raw[:n]))
)
def test_a_malformed_instruction_is_a_record_error(raw: bytes) -> None:
    with contextlib.suppress(RecordError):
        assert all(isinstance(value, int) for value in Instruction.decode(raw)[:3])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"2;1;;;1;",
        b"1;1;;;",
        b"1;x;;;1;",
        b"1;3;;;1;",
        b"1;-1;;;1;",
        b"1;1;\xff;;1;",
        b"1;2;;;1;7;8",
        b"1;2;;;1;7;8.9.9",
        b"1;2;;;1;7;a.b",
        b"1;2;;;1;7;1.2;3",
        b"1;2;;;1;7;",
        b"1;2;;;1;7;;",
        b"1;2;;;1;7;1.2;",
        b"1;2;;;1;7;;1.2",
        b"1;2;;;1;7;;1.2.3.4",
        b"1;2;;;1;7;;1.2.3;4",
        b"1;2;;;1;;;;",
        b"1;2;;;1;;;;0.1.2.3.4",
        b"1;2;;;1;;;;0.1.2.3.4.",
        b"1;2;;;1;;;;2.1.2.3.4.adapter",
        b"1;2;;;1;;;;0.01.2.3.4.adapter",
        b"1;2;;;1;;;;0.-1.2.3.4.adapter",
        b"1;2;;;1;;;;0.9223372036854775808.2.3.4.adapter",
        b"1;2;;;1;;;;0.1.2.3.4.ad\x00apter",
        b"1;2;;;1;;;;0.1.2.3.4.\xff",
        b"1;2;;;1;;;;0.1.2.3.4.adapter;",
        b"1;2;;;1;7;;;;",
        b"1;2;;;1;7;1.2;;;",
        b"1;2;;;1;7;1.2;;;05",
        b"1;2;;;1;7;1.2;;;-5",
        b"1;2;;;1;7;1.2;;;9223372036854775808",
        b"1;2;;;1;7;1.2;;;05;6",
        b"1;2;;;1;7;1;;;5;6",
        b"1;2;;;1;7;x;;;5",
        b"1;2;;;1;7;;1.2.3",
        b"1;2;;;1;7;;1.2.1.f",
        b"1;2;;;1;7;;1.1048577.1",
    ],
)
def test_examples_of_malformed_metas(raw: bytes) -> None:
    with pytest.raises(RecordError):
        Meta.decode(raw)


headers = st.lists(st.tuples(word, st.none() | st.binary(max_size=20)), max_size=6)


@given(headers)
def test_whatever_the_headers_are_it_is_a_message_or_a_record_error(headers: list[Any]) -> None:
    with contextlib.suppress(RecordError):
        message_of("a", b"", headers, (0, 0, 0))


@given(metas, st.binary())
def test_the_headers_are_in_their_order(meta: Meta, payload: bytes) -> None:
    made = ingress_headers("id", "source", meta, b"\0")
    assert tuple(name for name, _value in made) == INGRESS_HEADERS
    message = message_of("a", payload, made, (1, 2, 3))
    assert (message.id, message.source, message.qos, message.expires) == ("id", "source", meta.qos, meta.expires)
    assert (message.partition, message.offset, message.appended) == (1, 2, 3)


@given(records)
def test_the_session_log_round_trips(record: Any) -> None:
    """G9."""
    kind = session_log.KIND_OF[type(record)]
    assert session_log.decode(kind, session_log.encode(record)) == record
    for other in set(session_log.KIND_OF.values()) - {kind}:
        with pytest.raises(RecordError):
            session_log.decode(other, session_log.encode(record))


@given(word.filter(lambda client: "\0" not in client), st.sampled_from("osw"))
def test_session_keys_round_trip(client: str, kind: str) -> None:
    key = session_log.SessionKey(client, kind)
    assert session_log.SessionKey.decode(key.encode()) == key


@pytest.mark.parametrize("raw", [b"", b"client", b"\xff\x00o"])
def test_malformed_session_keys(raw: bytes) -> None:
    with pytest.raises(RecordError):
        session_log.SessionKey.decode(raw)


@pytest.mark.parametrize(
    ("kind", "raw"), [("o", b""), ("o", b"{}"), ("x", b"{}"), ("s", b'{"subscriptions":[],"version":2}'), ("w", b"[1]")]
)
def test_malformed_session_records(kind: str, raw: bytes) -> None:
    with pytest.raises(RecordError):
        session_log.decode(kind, raw)


def test_records_of_before_a_field_was_added_can_be_read() -> None:
    raw = b'{"client":"c","expiry_s":1,"since":2,"disconnected_ms":null,"will":null,"version":1}'
    assert session_log.decode("o", raw) == session_log.SessionOpened("c", 1, 2, None, None, 0, user="")
    presence = b'{"v":1,"client":"c","event":"lost","gateway":"g","epoch":1,"seq":2,"at_us":3,"reason":"r"}'
    assert events.decode(events.PresenceEvent, presence).user == ""


def test_windows_of_version_1_are_read_and_unknown_versions_refused() -> None:
    """G8: what was settled by then stands in `outgoing`."""
    raw = b'{"outgoing":[{"packet_id":0,"partition":1,"offset":2,"released":true}],"received":[3],"received_until":4'
    record = session_log.decode("w", raw + b',"version":1}')
    assert record == session_log.WindowRecord([session_log.OutgoingRecord(0, 1, 2, True)], [3], 4, version=1)
    with pytest.raises(RecordError, match="version 3"):
        session_log.decode("w", raw + b',"version":3}')


def test_events_round_trip_and_refuse_what_is_malformed() -> None:
    """R4, R6, R12."""
    delivery = events.RecipientOutcome(client="c", outcome="expired", qos=1, at_us=5)
    examples: list[events.Event] = [
        events.RouteEvent(op="add", route_key="a/b", shard=3),
        events.ProgressEvent(kind="relinquish", id="i", partition=1, offset=2, appended_ms=3, deliveries=[delivery]),
        events.CompletionEvent(id="i", touches=2, appended_ms=1, completed_ms=2),
        events.PresenceEvent(client="c", event="lost", gateway="g", epoch=1, seq=2, at_us=3),
        events.QuarantineEvent(topic="t", partition=0, offset=1, reason="r", record="", at_us=2),
    ]
    for event in examples:
        assert events.decode(type(event), events.encode(event)) == event
        for raw in (b"", b"{}", b"\xff", events.encode(event)[:-1], events.encode(event).replace(b'"v":1', b'"v":2')):
            with pytest.raises(RecordError):
                events.decode(type(event), raw)
    assert examples[0].kafka_key == "3:a/b"  # type: ignore[attr-defined]
    assert events.RouteEvent(op="tick").kafka_key == "tick"


def test_message_ids_are_uuids_of_version_7_in_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9562, 5.7: version and variant, the time in the first 48 bits, all different."""
    now_ns = 1_800_000_000_123_456_789
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    ids = []
    for _ in range(500):
        ids.append(new_message_id())
        now_ns += 1_000_000
    for n, text in enumerate(ids):
        uuid = UUID(text)
        assert str(uuid) == text
        assert (uuid.version, uuid.variant) == (7, "specified in RFC 4122")
        assert uuid.int >> 80 == 1_800_000_000_123 + n
    assert ids == sorted(set(ids))
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    same_moment = [UUID(new_message_id()).int for _ in range(200)]
    assert len(set(same_moment)) == 200
    random_bits = [bits & ((0xFFF << 64) | ((1 << 62) - 1)) for bits in same_moment]
    ever_set, always_set = 0, -1
    for bits in random_bits:
        ever_set |= bits
        always_set &= bits
    assert ever_set == (0xFFF << 64) | ((1 << 62) - 1), "all 74 random bits vary"
    assert always_set == 0


@given(word, st.integers(1, 64))
def test_one_hash_everywhere(identifier: str, count: int) -> None:
    """Q2, R8: shard and partition are CRC-32 modulo the number, within range."""
    assert shard_of(identifier, count) == partition_of(identifier, count) == hash_of(identifier) % count < count
    assert inbox_of(identifier) == "@" + identifier


def test_the_hash_by_example() -> None:
    assert hash_of("123456789") == 0xCBF43926  # the check value of CRC-32


@pytest.mark.parametrize(
    "section",
    [b"\xff", b"\x05", b"\x01\x01", b"\x02\x01\x02", b"\x00\x00", b"\x05\x02\x00\x00\x00\x09", b"\x03\x23\x00\x01"],
    ids=["no length", "too short", "truncated", "a value", "bytes behind", "an expiry", "an alias"],
)
def test_malformed_properties_of_a_record_are_refused(section: bytes) -> None:
    """Whoever may write to `ingress` could end gateways, or clients' connections for ever (invariant 10)."""
    headers = [("id", b"1"), ("source", b"c"), ("meta", Meta(1, "", None, 0, None).encode()), ("props", section)]
    with pytest.raises(RecordError, match="properties"):
        message_of("a", b"", headers, (0, 0, 0))


def test_an_event_that_is_nested_too_deeply_is_malformed() -> None:
    """In a field that nobody knows; whoever reads the topic goes on."""
    with pytest.raises(RecordError, match="not a RouteEvent"):
        events.decode(events.RouteEvent, DEEP)
    assert events.decode_good(events.RouteEvent, DEEP) is None
