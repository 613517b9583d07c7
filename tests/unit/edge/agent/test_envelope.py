"""Envelopes go there and back; whatever a stranger sends is refused with a reason (M16)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.agent.envelope import File, Mail, id_of, is_address, read
from edge.agent.errors import EnvelopeError

ID = "0123456789abcdef" * 2
MAIL = Mail(ID, "ann@a.example", ("bob@b.example", "bjørn@b.example"), b"\0\xff", True)


@pytest.mark.parametrize("one", [MAIL, Mail(ID, "", ("b@b",), b""), File(ID, "a b.txt", b"x")])
def test_there_and_back(one: Mail | File) -> None:
    assert read([*one.properties(), ("unknown", "is ignored")], one.content) == one
    assert id_of(one.properties()) == ID


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"waystation-envelope": "2"}, "version '2'"),
        ({"id": "x"}, "id"),
        ({"kind": "fax"}, "'fax'"),
        ({"from": "a> BODY=8BITMIME <b@c"}, "sender"),
        ({"to": "b@c\r\nDATA"}, "recipient"),
    ],
)
def test_refused(changed: dict[str, str], said: str) -> None:
    properties = [(name, changed.get(name, value)) for name, value in MAIL.properties()]
    with pytest.raises(EnvelopeError, match=said):
        read(properties, b"")


def test_no_envelope_and_no_recipients() -> None:
    with pytest.raises(EnvelopeError, match="no agent"):
        read([], b"")
    with pytest.raises(EnvelopeError, match="0 recipients"):
        read([pair for pair in MAIL.properties() if pair[0] != "to"], b"")


NAMES = st.sampled_from(["waystation-envelope", "id", "kind", "from", "to", "name"])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["1", ID, "mail", "file"]) | st.text()), max_size=8), st.binary())
def test_any_properties(properties: list[tuple[str, str]], payload: bytes) -> None:
    try:
        found = read(properties, payload)
    except EnvelopeError:
        return
    if isinstance(found, Mail):
        assert all(map(is_address, found.recipients))


@given(st.text())
def test_an_address_cannot_end_its_command(text: str) -> None:
    if is_address(text):
        assert not set(text) & set(' \t\r\n<>\0"')
