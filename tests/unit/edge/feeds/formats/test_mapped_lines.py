"""CSV and JSON lines with a mapping: what is read, numbers at the edges, and what is refused (S2)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.feeds.formats.csv_lines import CsvDialect, csv_lines
from edge.feeds.formats.json_lines import json_lines
from edge.feeds.formats.lines import LineParser
from edge.feeds.source import NUMBER_MAX, Found, Malformed, SourceMessage
from feeds.counter import UINT32, Counter
from feeds.errors import FeedSettingsError
from feeds.line_mapping import LineMapping
from tests.draw import examples

few = settings(max_examples=examples(40))

BY_SEQ = LineMapping(number="seq")


def csv(data: bytes, mapping: LineMapping = BY_SEQ, dialect: CsvDialect | None = None) -> list[Found]:
    parser = LineParser(csv_lines(mapping, dialect), "plant", is_numbered=mapping.is_numbered)
    return parser.feed(data) + parser.end()


def json(data: bytes, mapping: LineMapping = BY_SEQ) -> list[Found]:
    parser = LineParser(json_lines(mapping), "plant", is_numbered=mapping.is_numbered)
    return parser.feed(data) + parser.end()


def reason(found: list[Found]) -> str:
    report = found[-1]
    assert isinstance(report, Malformed)
    return report.reason


def test_a_header_names_the_columns_also_after_a_byte_order_mark() -> None:
    mapping = LineMapping(stream="sensor", number="seq", time="at", time_unit="s")
    found = csv(b'\xef\xbb\xbfseq,sensor,at,"v"\r\n5,a,1700000000.5,"x, ""y"""\r\n', mapping)
    assert found == [SourceMessage("plant/a@0", 5, b'5,a,1700000000.5,"x, ""y"""', 1_700_000_000_500_000, {})]


def test_a_dialect() -> None:
    dialect = CsvDialect(delimiter=";", quote="'", columns=("name", "seq"), skips_spaces=True, encoding="latin-1")
    (found,) = csv(b"'caf\xe9; bar'; 7\n", dialect=dialect)
    assert found.number == 7
    tabs = CsvDialect(delimiter="\t", quote="", columns=("name", "seq"))
    assert csv(b'"a\t8\n', dialect=tabs)[0].number == 8


@pytest.mark.parametrize(
    "dialect",
    [
        CsvDialect(delimiter=""),
        CsvDialect(delimiter=",,"),
        CsvDialect(encoding="nonsense"),
        CsvDialect(encoding="hex"),
        CsvDialect(encoding="undefined"),
        CsvDialect(columns=("a", "b")),
        CsvDialect(columns=("seq", "seq")),
    ],
)
def test_a_dialect_that_is_not_possible(dialect: CsvDialect) -> None:
    with pytest.raises(FeedSettingsError):
        csv_lines(BY_SEQ, dialect)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a,b\n1,2\n", "no header line has come yet"),
        (b"seq,v\n1\n", "1 values, there are 2 columns"),
        (b'seq,v\n1,"x\n', "no CSV line"),
        (b'seq,v\n1,"x"y\n', "no CSV line"),
        (b"seq,v\n1,\xff\n", "is not utf-8"),
        (b"seq,v\n-1,x\n", "a whole number"),
        (b"seq,v\n1.0,x\n", "a whole number"),
        ("seq,v\n١,x\n".encode(), "a whole number"),
        (b"seq,v\n9223372036854775808,x\n", "0 to 9223372036854775807"),
        (b"seq,v\n" + b"9" * 5_000 + b",x\n", "a whole number"),
    ],
)
def test_malformed_csv(data: bytes, why: str) -> None:
    assert why in reason(csv(data))


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe")])
def test_a_header_line_that_is_only_a_byte_order_mark(encoding: str, mark: bytes) -> None:
    """It is malformed, and the next line is read."""
    parser = LineParser(csv_lines(BY_SEQ, CsvDialect(encoding=encoding)), "plant")
    found = parser.feed(mark + b"\n")
    assert "byte order mark" in reason(found)
    if encoding == "utf-8-sig":
        assert [one.number for one in parser.feed(b"seq,v\n7,x\n") if isinstance(one, SourceMessage)] == [7]


@pytest.mark.parametrize("number", [0, 2**31, 2**32, 2**53 + 1, NUMBER_MAX])
def test_numbers_are_exact_forwards_and_backwards(number: int) -> None:
    others = sorted({number, max(0, number - 1)}, reverse=True)
    for text in (b'{"seq":%d}\n', b'{"seq":"%d"}\n'):
        assert [one.number for one in json(b"".join(text % one for one in others))] == others
    assert [one.number for one in csv(b"seq\n" + b"".join(b"%d\n" % one for one in others))] == others


@few
@given(st.lists(st.integers(2**32 - 5, 2**32 + 5), min_size=1, max_size=20))
def test_a_32_bit_counter_that_starts_over(numbers: list[int]) -> None:
    mapping = LineMapping(stream="s", number="seq", counter=UINT32, near={"a": 2**32})
    data = b"".join(b'{"s":"a","seq":%d}\n' % (number % 2**32) for number in numbers)
    assert [one.number for one in json(data, mapping)] == numbers


def test_pointers_into_json() -> None:
    mapping = LineMapping(stream="/h/a~1b", number="/h/n", time="t", time_unit="ns")
    (found,) = json(b'{"h":{"a/b":12,"n":3},"t":1700000000000000999}', mapping)
    assert (found.stream, found.number) == ("plant/12@0", 3)
    assert isinstance(found, SourceMessage)
    assert found.at_us == 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[]", "no JSON object"),
        (b'{"seq":1', "no JSON object"),
        (b'{"a":' + b"[" * 30_000, "no JSON object"),
        (b'{"seq":"\xff"}', "no JSON object"),
        (b"{}", "no field 'seq' for the number"),
        (b'{"seq":true}', "a whole number"),
        (b'{"seq":1.5}', "a whole number"),
        (b'{"seq":null}', "a whole number"),
        (b'{"seq":9223372036854775808}', "0 to 9223372036854775807"),
        (b'{"seq":-1}', "0 to 9223372036854775807"),
    ],
)
def test_malformed_json(data: bytes, why: str) -> None:
    assert why in reason(json(data))


@pytest.mark.parametrize(
    ("value", "unit", "at_us"),
    [
        ("1.5", "s", 1_500_000),
        ("1700000000123", "ms", 1_700_000_000_123_000),
        ('"7"', "us", 7),
        ('"2024-02-29T12:00:00+01:00"', "iso", 1_709_204_400_000_000),
        ('"2024-02-29T12:00:00"', "iso", None),
        ('"2023-02-29T12:00:00Z"', "iso", None),
        ("5", "iso", None),
        ("1e300", "s", None),
        ("1e308", "s", None),
        ("-1e308", "ms", None),
        ("9" * 400, "us", None),
        ("-" + "9" * 4_000, "ns", None),
        (f"{2**63 - 1}000", "ns", 2**63 - 1),
        ("99999999999999999999", "s", None),
        ('"1e5"', "s", None),
        ("true", "s", None),
    ],
)
def test_times(value: str, unit: str, at_us: int | None) -> None:
    mapping = LineMapping(number="seq", time="t", time_unit=unit)  # type: ignore[arg-type]
    (found,) = json(f'{{"seq":1,"t":{value}}}'.encode(), mapping)
    assert (found.stream, found.number) == ("plant@0", 1)
    assert (found.at_us if isinstance(found, SourceMessage) else None) == at_us


def test_a_line_that_an_unusual_encoding_refuses() -> None:
    """Not every encoding says it by UnicodeDecodeError."""
    dialect = CsvDialect(columns=("seq",), encoding="idna")
    assert "the line is not idna" in reason(csv(b"xn--a\n", dialect=dialect))


@pytest.mark.parametrize("stream", ["", "a+b", "#", "x" * 300, "a\\u0000", "\\ud800"])
def test_a_stream_that_cannot_be_one(stream: str) -> None:
    (found,) = json(f'{{"s":"{stream}","seq":1}}'.encode(), LineMapping(stream="s", number="seq"))
    assert isinstance(found, Malformed)


def test_options_that_contradict_each_other() -> None:
    for mapping, why in (
        (LineMapping(number="n", is_numbered=True), "remove `stream` and `number`"),
        (LineMapping(stream="n", is_numbered=True), "remove `stream` and `number`"),
        (LineMapping(counter=UINT32), "set `number` too"),
        (LineMapping(number="n", near={"": 5}), "set `counter`"),
        (LineMapping(number="n", counter=Counter(3, 3)), "two values or more"),
    ):
        with pytest.raises(FeedSettingsError, match=why):
            json_lines(mapping)
    with pytest.raises(FeedSettingsError, match="name the `columns`"):
        csv_lines(LineMapping(is_numbered=True))


def test_the_sequencers_number_is_that_of_a_line() -> None:
    mapping = LineMapping(is_numbered=True)
    found = csv(b"5:1\ta,b\n5:2\ta,b,c\n", mapping, CsvDialect(columns=("x", "y")))
    assert [(one.stream, one.number, type(one)) for one in found] == [
        ("plant@5", 1, SourceMessage),
        ("plant@5", 2, Malformed),
    ]
