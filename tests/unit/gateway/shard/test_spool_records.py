"""Commits as records of the changelog: round trip, order, last value of each key, malformed records (Q1, R4)."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shard.feed_states import HeldState, SourceState
from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import MARKER_KEY, Marker, Record, batch_of, message_key, records_of, row_key
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.errors import RecordError
from tests.draw import examples

NUMBERS = st.integers(0, 5) | st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
BYTES = st.binary(max_size=8)
TIMES = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    Message, TEXTS, TEXTS, TEXTS, BYTES, st.integers(0, 2), st.booleans(), st.none() | TIMES, BYTES,
    st.integers(-1, 64), NUMBERS, TIMES, TEXTS, TIMES,
)  # fmt: skip
INSTRUCTIONS = st.builds(
    Instruction, st.integers(0, 64), NUMBERS, st.integers(0, 9), st.none() | st.integers(0, 9), TIMES,
    st.sampled_from([ROUTED, EVERYONE]),
)  # fmt: skip
MARKERS = st.builds(Marker, NUMBERS, NUMBERS, st.dictionaries(TEXTS, BYTES, max_size=3), NUMBERS)

PLACES = st.builds(
    lambda key, place: key.hex().encode() + place, st.binary(max_size=4), st.sampled_from([b"/0", b"/1"])
)
SOURCES = st.builds(
    SourceState,
    st.just(1),
    NUMBERS,
    TEXTS,
    TEXTS,
    st.none() | NUMBERS,
    st.lists(TEXTS, max_size=2),
    st.just([]),
    st.lists(st.builds(HeldState, TEXTS, NUMBERS, NUMBERS, st.integers(0, 1), NUMBERS, NUMBERS), max_size=2),
).map(msgspec.msgpack.encode)


@st.composite
def batches(draw: st.DrawFn) -> SpoolBatch:
    """As a chunk of the changelog gives them: each key once."""
    numbers = draw(st.lists(NUMBERS.filter(bool), max_size=6, unique=True))
    rows = draw(st.lists(NUMBERS, max_size=6, unique=True))
    made = SpoolBatch()
    for number in numbers:
        match draw(st.sampled_from(["message", "instruction", "forgotten"])):
            case "message":
                made.messages.append((number, draw(MESSAGES), draw(st.lists(INSTRUCTIONS, max_size=2))))
            case "instruction":
                mid = draw(st.integers(0, number - 1))
                made.instructions.append((number, mid, draw(MESSAGES), draw(INSTRUCTIONS)))
            case _:
                made.forgotten.append(number)
    for row in rows:
        if draw(st.booleans()):
            made.deleted_rows.append(row)
            continue
        ids = tuple(draw(st.lists(st.integers(1, 268_435_455), max_size=2)))
        made.rows.append(
            (row, draw(NUMBERS), draw(TEXTS), draw(st.integers(0, 2)), draw(st.booleans()), ids, draw(st.booleans()))
        )
    made.keyed = draw(st.dictionaries(TEXTS, st.none() | st.tuples(BYTES, TIMES), max_size=3))
    made.sources = draw(st.dictionaries(PLACES, SOURCES, max_size=3))
    made.finished_clients = draw(st.dictionaries(st.tuples(NUMBERS, NUMBERS), st.lists(TEXTS, max_size=2), max_size=3))
    return made


def full_batch() -> SpoolBatch:
    """Something of each kind."""
    message = Message("id", "sender", "a/b", b"payload", 1, False, 5_000, b"\0", 0, 7, 1_000, "x", 9)
    return SpoolBatch(
        messages=[(4, message, [Instruction(0, 7, 0, 1, 1_000)])],
        rows=[(40, 4, "s", 2, True, (7, 8), True)],
        instructions=[(5, 4, message, Instruction(0, 7, 1, None, 1_000, EVERYONE))],
        deleted_rows=[31, 30, 31],
        forgotten=[3],
        positions={"changed": b"1"},
        keyed={"idé": (b"print", 1_234), "gone": None},
        sources={b"00/1": msgspec.msgpack.encode(SourceState(1, 4, "flight", "radar", 0, ["radar@1"], [], []))},
        finished_clients={(9, 1): ["c", "d"]},
        ended_positions=[(8, 2)],
    )


MARKER = Marker(40, 5, {"shard": b"\1", "boot": b"\2"}, 6)


@settings(max_examples=examples(200), deadline=None)
@given(batches(), MARKERS)
def test_a_batch_comes_back_from_its_records(batch: SpoolBatch, marker: Marker) -> None:
    assert batch_of(records_of(batch, marker)) == (batch, marker)


def test_the_order_of_records_is_fixed() -> None:
    """What is added comes before what names it; the marker is last: what precedes it is committed."""
    assert [(key, value is None) for key, value in records_of(full_batch(), MARKER)] == [
        (b"m/4", False),
        (b"r/40", False),
        (b"m/5", False),
        (b"f/9/1", False),
        (b"k/id\xc3\xa9", False),
        (b"s/00/1", False),
        (b"r/31", True),
        (b"r/30", True),
        (b"m/3", True),
        (b"f/8/0", True),
        (b"f/8/1", True),
        (b"k/gone", True),
        (b"c", False),
    ]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_the_last_record_of_a_key_counts(commits: list[SpoolBatch], data: st.DataObject) -> None:
    """A chunk says what its records say after compaction."""
    records = [record for batch in commits for record in records_of(batch, MARKER)]
    start = data.draw(st.integers(0, len(records)))
    chunk = records[start:]
    latest: dict[bytes, bytes | None] = {}
    for key, value in chunk:
        latest.pop(key, None)
        latest[key] = value
    found, marker = batch_of(chunk)
    compacted, same = batch_of(latest.items())
    assert marker == same
    assert sorted(records_of(found, MARKER), key=repr) == sorted(records_of(compacted, MARKER), key=repr)


@pytest.mark.parametrize("key", [key for key, value in records_of(full_batch(), MARKER) if value is not None])
def test_every_truncation_is_an_error_that_names_the_key(key: bytes) -> None:
    value = dict(records_of(full_batch(), MARKER))[key]
    assert value is not None
    for end in range(len(value)):
        with pytest.raises(RecordError) as raised:
            batch_of([(key, value[:end])])
        assert f"spool record {key!r} is malformed" in str(raised.value)
    with pytest.raises(RecordError, match="malformed"):
        batch_of([(key, value + b"\0")])


def value(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


FULL = dict(records_of(full_batch(), MARKER))
TOO_LARGE = b"9223372036854775808"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ((b"", b""), "is of an unknown kind"),
        ((b"x/1", b""), "is of an unknown kind"),
        ((b"c/1", FULL[b"c"]), "is of an unknown kind"),
        ((b"c", None), "has no value"),
        *[((kind + b"/" + number, None), "has no valid number")
          for kind in (b"m", b"r") for number in (b"", b"-1", b"+1", b"01", b"1_0", b" 1", b"x", b"1/2", TOO_LARGE)],
        *[((b"f/" + place, None), "has no valid number") for place in (b"", b"1", b"1/", b"/1", b"1/2/3", b"1/x")],
        ((b"k/\xff", None), "not UTF-8"),
        ((b"m/1", value("message", 2, {}, [])), "has the unknown version 2"),
        ((b"m/1", value("message", 1, {}, [])), "malformed"),
        ((b"m/1", value("other", 1, {}, [])), "malformed"),
        ((b"m/4", FULL[b"m/5"]), "the message 4 is not older"),
        ((b"r/1", value(2, 1, "s", 1, False, (), False)), "has the unknown version 2"),
        ((b"r/1", value(1, 1, "s", 3, False, (), False)), "malformed"),
        ((b"r/1", value(1, -1, "s", 1, False, (), False)), "malformed"),
        ((b"r/1", value(1, 2**63, "s", 1, False, (), False)), "malformed"),
        ((b"r/1", value(1, 1, b"s", 1, False, (), False)), "malformed"),
        ((b"k/x", value(1, b"p", 2**63)), "malformed"),
        ((b"k/x", value(0, b"p", 1)), "has the unknown version 0"),
        ((b"f/1/1", value(1, "ab")), "malformed"),
        ((b"f/1/1", value(1, ["a"])[:-1] + b"\xff"), "malformed"),
        ((b"c", msgspec.msgpack.encode({"last_row": 1, "last_mid": 1, "positions": {}, "version": 2})), "version 2"),
        ((b"c", msgspec.msgpack.encode({"last_row": 1, "last_mid": 1, "positions": {"a": 1}})), "malformed"),
        ((b"c", msgspec.msgpack.encode({"last_row": 2**63, "last_mid": 1, "positions": {}})), "malformed"),
        ((b"c", b"\x81\xa1x" + b"\x91" * 100_000), "malformed"),
    ],
)  # fmt: skip
def test_a_malformed_record_is_an_error_that_says_what_is_wrong(record: Record, problem: str) -> None:
    with pytest.raises(RecordError, match=problem) as raised:
        batch_of([record])
    assert f"spool record {record[0]!r}" in str(raised.value)


def test_a_time_that_no_database_holds_is_malformed() -> None:
    batch = full_batch()
    batch.messages[0][1].expires = 2**64 - 1
    with pytest.raises(RecordError, match="expires"):
        batch_of(records_of(batch, MARKER))


def test_a_long_key_is_shortened_in_the_error() -> None:
    with pytest.raises(RecordError) as raised:
        batch_of([(b"x" * 10_000, None)])
    assert len(str(raised.value)) < 200


@settings(max_examples=examples(500), deadline=None)
@given(st.sampled_from(sorted(FULL)), st.data())
def test_a_mutated_record_is_an_error_or_a_change(key: bytes, data: st.DataObject) -> None:
    """And nothing else."""
    raw = bytearray(FULL[key] or b"\x90")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RecordError):
        batch_of([(key, bytes(raw))])


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=12), st.none() | st.binary(max_size=40))
def test_any_bytes_are_an_error_or_a_change(key: bytes, raw: bytes | None) -> None:
    for kind in (b"", b"m/1", b"r/1", b"k/", b"f/1/1", b"c"):
        with contextlib.suppress(RecordError):
            batch_of([(kind or key, raw)])


def test_malformed_records_can_be_left_out() -> None:
    """As if they were not there: an earlier value of the key counts."""
    good = records_of(full_batch(), MARKER)
    bad: list[Record] = [(b"m/4", b"\xc1"), (b"x", b""), (MARKER_KEY, None)]
    reported: list[tuple[int, str]] = []
    found = batch_of([*good, *bad], lambda index, error: reported.append((index, str(error))))
    assert found == batch_of(good)
    assert [index for index, _ in reported] == [len(good), len(good) + 1, len(good) + 2]
    assert "m/4" in reported[0][1]


def test_keys_name_what_they_are_for() -> None:
    assert (message_key(7), row_key(0), MARKER_KEY) == (b"m/7", b"r/0", b"c")


def batch_with(*parts: tuple[int, int], ended: tuple[int, int] | None = None) -> SpoolBatch:
    return SpoolBatch(
        finished_clients={part: [f"c{part}"] for part in parts}, ended_positions=[] if ended is None else [ended]
    )


def test_a_part_ends_with_its_position_in_a_later_batch() -> None:
    """R4: an attempt that failed may have left it in the changelog: its tombstone is written all the same. A part that
    nobody has ended stays."""
    merged = batch_with((7, 0), (8, 0)).then(batch_with((7, 1), ended=(7, 2)))
    assert merged.parts() == {(7, 0): [], (7, 1): [], (8, 0): ["c(8, 0)"]}
    assert batch_with((7, 0), (7, 1)).then(batch_with(ended=(7, 1))).parts() == {(7, 0): [], (7, 1): ["c(7, 1)"]}
    assert batch_with(ended=(7, 2)).then(batch_with((7, 0))).parts() == {(7, 0): ["c(7, 0)"], (7, 1): []}


def test_what_is_done_before_its_commit_leaves_only_tombstones() -> None:
    """R4: the next marker would commit what an attempt that failed has left in the changelog."""
    batch = full_batch()
    batch.rows.append((41, 2, "t", 1, False, (), False))
    batch.deleted_rows += [40, 41]
    [(message, instructions, numbers)], rows = batch.take_done()
    assert rows == {40, 41}
    assert (message.id, len(instructions), numbers) == ("id", 2, [4, 5])
    assert (batch.messages, batch.rows, batch.instructions) == ([], [], [])
    assert {40, 41} <= {*batch.deleted_rows}
    assert batch.take_done() == ([], set())
    assert len(full_batch().messages[0][2]) == 1
