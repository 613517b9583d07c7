"""The table of ids against a dictionary (M19)."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from bundles.id_table import IdTable, raw_id, text_id

ids = st.binary(min_size=16, max_size=16)


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=400))
def test_it_finds_what_a_dictionary_finds(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added and removed, and however often the table grows."""
    at: list[bytes] = []
    table, expected = IdTable(lambda position: at[position]), dict[bytes, int]()
    for number, is_added in steps:
        raw = number.to_bytes(16, "big")
        if is_added and raw not in expected:
            expected[raw] = len(at)
            at.append(raw)
            if not table.add(raw, len(at) - 1):
                table.rebuild(expected.values())
        elif not is_added and raw in expected:
            at[expected.pop(raw)] = b""
        assert {one: table.find(one) for one in expected} == expected
        assert (table.find(raw) is not None) == (raw in expected)


@given(ids)
def test_ids_as_bytes_and_as_text(raw: bytes) -> None:
    assert text_id(raw) == str(UUID(bytes=raw))
    assert raw_id(text_id(raw)) == raw
