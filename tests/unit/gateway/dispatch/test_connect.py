"""The dispatcher finds the client identifier in bytes that it only looks at: in any pieces, and in anything (R1)."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dispatch.connect import MOST_BYTES, NOT_UNDERSTOOD, FoundClient, Looked, NeedsBytes, look
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Connect, Will
from mqtt.wire import write_varint

V2_HEADER = (
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + (12).to_bytes(2, "big") + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"\x9c\x40\x07\x5b"
)
V1_HEADER = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 1883\r\n"
PROPERTIES: dict[str, Any] = {
    "session_expiry_interval": 3600,
    "receive_maximum": 10,
    "user_property": [("server-reference", "follow"), ("k", "v" * 300)],
}

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
wills = st.none() | st.builds(Will, topic=st.just("t"), payload=st.binary(max_size=50), qos=st.integers(0, 2))
connects = st.builds(
    Connect,
    client_id=names,
    version=st.sampled_from([4, 5]),
    clean_start=st.booleans(),
    keep_alive=st.integers(0, 65535),
    username=st.just("user"),
    password=st.none() | st.binary(max_size=20),
    will=wills,
    properties=st.sampled_from([None, PROPERTIES]),
)


def encoded(connect: Connect) -> bytes:
    return encode(connect, connect.version)


def in_steps(data: bytes, is_proxied: bool = False) -> tuple[Looked, int]:
    """What is known in the end if each time only those bytes come that were asked for, and how often was looked."""
    have, looks = b"", 0
    while True:
        looks += 1
        found = look(have, is_proxied)
        if not isinstance(found, NeedsBytes):
            return found, looks
        assert found.size > len(have), "it asks for what it has"
        assert found.size <= len(data), "it asks for more than there is"
        have = data[: found.size]


@given(connects, st.sampled_from([b"", V1_HEADER, V2_HEADER]))
def test_every_beginning_says_nothing_or_who_it_is(connect: Connect, header: bytes) -> None:
    """R1: the answer never changes with what comes later, and no more is waited for than the packet has."""
    data, is_proxied = header + encoded(connect), bool(header)
    whole = FoundClient(connect.client_id)
    assert look(data, is_proxied) == whole
    assert look(data + b"\x30\x05\0\1tab", is_proxied) == whole
    for size in range(len(data)):
        found = look(data[:size], is_proxied)
        assert found == whole or (isinstance(found, NeedsBytes) and size < found.size <= len(data)), size


@given(connects, st.sampled_from([b"", V1_HEADER, V2_HEADER]))
def test_few_looks_are_enough(connect: Connect, header: bytes) -> None:
    found, looks = in_steps(header + encoded(connect), bool(header))
    assert found == FoundClient(connect.client_id)
    assert looks <= 9 + (40 if header == V1_HEADER else 3 if header else 0)


@given(st.binary(max_size=200), st.booleans())
@example(b"\x10\xff\xff\xff\xff\x7f", False)
@example(b"\x10\x0c\0\4MQTT\5\2\0\0\xff\xff", False)
@example(b"\x10\xff\xff\xff\x7f\0\4MQTT\5\2\0\0\xff\xff\xff\x7f", False)
@example(b"\x10\x00", False)
@example(b"PROXY " + b"x" * 120, True)
def test_anything_is_looked_at(data: bytes, is_proxied: bool) -> None:
    found = look(data, is_proxied)
    assert not isinstance(found, NeedsBytes) or len(data) < found.size <= MOST_BYTES


@given(connects, st.data())
def test_what_a_gateway_accepts_is_understood(connect: Connect, draw: st.DataObject) -> None:
    """A changed CONNECT that a gateway still decodes has the identifier that the gateway decodes."""
    data = bytearray(encoded(connect))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        packets = Decoder(1 << 20).feed(bytes(data))
    except RemoteProtocolError:
        look(bytes(data))
        return
    if packets and isinstance(packets[0], Connect):
        assert look(bytes(data)) == FoundClient(packets[0].client_id)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
        b"\x20\x02\0\0",
        b"\x11\x0c\0\4MQTT\4\2\0\0\0\0",
        b"\x10\x0e\0\6MQIsdp\3\2\0\0\0\0",
        b"\x10\x0c\0\4MQTT\x84\2\0\0\0\0",
        b"\x10\x0c\0\4MQTT\6\2\0\0\0\0",
        b"\x10\x0c\0\4MQTT\4\2\0\0\0\1",
        b"\x10\x0d\0\4MQTT\4\2\0\0\0\1\0",
        b"\x10\x0d\0\4MQTT\4\2\0\0\0\1\xff",
    ],
    ids=[
        "http",
        "tls",
        "another packet",
        "flags",
        "3.1",
        "bridge of mosquitto",
        "level 6",
        "cut off by its length",
        "U+0000",
        "not UTF-8",
    ],
)
def test_what_no_gateway_accepts_is_known_early(data: bytes) -> None:
    """Nobody waits for more of it: a gateway answers it."""
    assert look(data) == NOT_UNDERSTOOD


def test_properties_that_are_too_long_are_not_waited_for() -> None:
    body = b"\0\4MQTT\5\2\0\0" + write_varint(MOST_BYTES) + bytes(MOST_BYTES) + b"\0\1a"
    assert look(b"\x10" + write_varint(len(body)) + body[:20]) == NOT_UNDERSTOOD


def test_without_a_header_of_the_proxy_nothing_is_understood() -> None:
    assert look(encoded(Connect(client_id="a")), is_proxied=True) == NOT_UNDERSTOOD
