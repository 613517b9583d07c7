"""Figures and payloads as text: whatever comes from a client is bounded, and shows no control character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.parts import HREF_LENGTH, NAME_LENGTH, TITLE_LENGTH, link, name
from gateway.console.text import age, bytes_words, moment, payload, plain_number, seconds_words


@given(st.binary(max_size=300), st.integers(2, 64))
def test_any_payload_is_shown_within_bounds(data: bytes, most: int) -> None:
    kind, shown = payload(data, most)
    assert shown.isprintable()
    assert len(shown) <= 10 * most + 1
    if kind == "hex" and len(data) <= most // 2:
        assert bytes.fromhex(shown) == data


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=300), st.integers(4, 64))
def test_text_is_shown_as_text_wherever_it_is_cut(text: str, most: int) -> None:
    """Also within a character."""
    assert payload(text.encode(), most)[0] == "text"


@pytest.mark.parametrize("data", [b"\x00", b"\x1b[2J", b"\xff\xfe", b"ab\x07"])
def test_what_is_no_text_is_hex(data: bytes) -> None:
    assert payload(data, 64) == ("hex", data.hex(" "))


@given(st.text(st.characters(), max_size=3_000))
def test_any_name_is_visible_and_cut(text: str) -> None:
    """Lone surrogates, marks that turn the direction, and control characters included."""
    cell = name(text, link("/console/client", client=text))
    assert cell.text.isprintable()
    assert len(cell.text) <= NAME_LENGTH + 1
    assert len(cell.title) <= TITLE_LENGTH + 1
    assert len(cell.href) <= HREF_LENGTH
    assert cell.href.isascii()


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (plain_number(None), "–"),
        (plain_number(1234567), "1234567"),
        (plain_number(0.12345), "0.123"),
        (bytes_words(0), "0 bytes"),
        (bytes_words(1_234_567), "1.23 MB"),
        (seconds_words(0.0005), "0.5 ms"),
        (seconds_words(1.5), "1.5 s"),
        (age(-5), "0 s"),
        (age(3 * 3600), "3 h"),
        (moment(0), "1970-01-01 00:00:00 UTC"),
        (moment(1e30), "–"),
    ],
)
def test_figures(shown: str, expected: str) -> None:
    assert shown == expected
