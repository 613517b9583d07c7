"""Which records of a feed's topic are copies: those that `feeds` decodes, and no others (S2, S5)."""

from typing import Any

from pyspark.sql import SparkSession

from feeds import passed
from feeds.errors import FeedRecordError
from feeds.message import NAME_BYTES_MAX, NUMBER_MAX, decode, epoch_of, name_of
from pipelines.feeds.copies import copies, with_slots
from tests.integration.pipelines.streamed import kafka_rows

GOOD = b"1;5;0;7;1700000000000000;north"
KEYS = [
    b"a@0", b"a@b@3", "é/ü@9".encode(), b"@1", b"a", b"a@", b"a@01", b"a@-1", b"a#@1", b"a+@1", b"a\n@1", b"a@1\n",
    b"\xff@1", b"x" * NAME_BYTES_MAX + b"@1", b"x" * (NAME_BYTES_MAX + 1) + b"@1", "é".encode() * 128 + b"@1",
    b"a@%d" % NUMBER_MAX, b"a@%d" % (NUMBER_MAX + 1), b"a b@1", None,
]  # fmt: skip
FIELDS = [
    GOOD, b"2;5;0;7;1;north", b"1;05;0;7;1;north", b"1;5;0;7;1;", b"1;5;0;7;1", b"1;5;0;7;1;a;b", b"",
    b"1;+5;0;7;1;a",     b"1;5;3;7;1;a", b"1; 5;0;7;1;a", b"1;5;0;7;1;\xff", b"1;5;0;7;1;a\n", b"1;5;0;7;1;\x7f",
    b"1;%d;0;7;1;a" % NUMBER_MAX,
    b"1;%d;0;7;1;a" % (NUMBER_MAX + 1), b"1;99999999999999999999;0;7;1;a", b"1;5;0;7;%d;a" % NUMBER_MAX,
    b"1;5;0;7;1;" + b"x" * NAME_BYTES_MAX, b"1;5;0;7;1;" + b"x" * (NAME_BYTES_MAX + 1),
    b"1\n;5;0;7;1;a", b"01;5;0;7;1;a",
]  # fmt: skip
HEADERS = [
    [], [("feed", GOOD), ("feed", GOOD)], [("other", GOOD)], [("feed", GOOD), ("x", b"")], [("feed, passed", GOOD)],
    [("feed", None)],
]  # fmt: skip
CASES: list[tuple[bytes | None, Any, bytes | None]] = [
    *((key, [("feed", GOOD)], b"x") for key in KEYS),
    *((b"a@1", [(name, fields)], value) for fields in FIELDS for name, value in (("feed", b"x"), ("passed", None))),
    *((b"a@1", headers, b"x") for headers in HEADERS),
    (b"a@1", [("feed", GOOD)], None), (b"a@1", [("passed", GOOD)], b""), (b"a@1", None, b"x"),
]  # fmt: skip


def decoded(key: bytes | None, headers: Any, value: bytes | None) -> tuple[Any, ...] | None:
    """Kind and fields, as the modules of `feeds` read the record; None if they refuse it."""
    try:
        if passed.is_passed(headers):
            found = passed.decode(key, headers, value)
            return "passed", found.stream, found.sequence, 0, found.message_sequence, found.adapter
        message = decode(key, headers, value)
    except FeedRecordError:
        return None
    return "feed", *message[:4], message.adapter


def test_a_record_is_taken_exactly_if_it_is_decoded(spark: SparkSession) -> None:
    """Whatever is on the topic; and with the same fields. Records of a topic with an odd number of partitions are
    refused, whatever they are."""
    records = [
        (key, value, "t.feed.a", 0, offset, 1_700_000_000_000, headers)
        for offset, (key, headers, value) in enumerate(CASES)
    ]
    odd = [(b"a@1", b"x", "t.feed.odd", 0, 0, 1_700_000_000_000, [("feed", GOOD)])]
    rows = with_slots(copies(kafka_rows(spark, records + odd), "t.feed."), {"t.feed.a": 4, "t.feed.odd": 3}).collect()
    found = {row.offset: row for row in rows if row.feed == "a"}
    for offset, case in enumerate(CASES):
        row, wanted = found[offset], decoded(*case)
        if row.quarantined is not None:
            assert wanted is None, (case, row.quarantined.reason)
            assert (row.quarantined.offset, row.quarantined.topic) == (offset, "t.feed.a")
            continue
        fields = row.kind, row.stream, row.sequence, row.part, row.message_sequence, row.adapter
        assert fields == wanted, case
        assert (row.name, row.epoch, row.slot) == (name_of(row.stream), epoch_of(row.stream), "active")
    assert sum(row.quarantined is None for row in rows) == sum(decoded(*case) is not None for case in CASES)
    (refused,) = (row.quarantined for row in rows if row.feed == "odd")
    assert refused.reason == "the topic t.feed.odd has an odd number of partitions"
