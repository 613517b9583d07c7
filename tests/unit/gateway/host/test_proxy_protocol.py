"""The PROXY header: what is one, how far it goes, and whom it names (proxy-protocol.txt, sections 2.1 and 2.2)."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ProxyHeaderError
from gateway.host.proxy_protocol import HEADER_BYTES_MAX, client_address, missing

SIGNATURE = bytes.fromhex("0D0A0D0A000D0A515549540A")
ports = st.integers(0, 65_535)


def binary(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


def over_ip(kind: type[IPv4Address] | type[IPv6Address], source: str, port: int, extensions: bytes = b"") -> bytes:
    addresses = kind(source).packed + kind("1.2.3.4" if kind is IPv4Address else "::9").packed
    family = 0x11 if kind is IPv4Address else 0x21
    return binary(0x21, family, addresses + port.to_bytes(2, "big") + b"\x07\x5b" + extensions)


@st.composite
def headers(draw: st.DrawFn) -> tuple[bytes, tuple[str, int] | None]:
    """Valid headers of both versions, and whom they name."""
    port, rest = draw(ports), draw(st.binary(max_size=60))
    four, six = str(draw(st.ip_addresses(v=4))), str(draw(st.ip_addresses(v=6)))
    return draw(
        st.sampled_from(
            [
                (over_ip(IPv4Address, four, port, rest), (four, port)),
                (over_ip(IPv6Address, six, port, rest), (six, port)),
                (binary(0x21, 0x31, bytes(216) + rest), None),
                (binary(0x21, 0x00, rest), None),
                (binary(0x20, 0x00, rest), None),
                (binary(0x20, 0x11, rest), None),
                (f"PROXY TCP4 {four} 9.9.9.9 {port} 1883\r\n".encode(), (four, port)),
                (f"PROXY TCP6 {six} ::1 {port} 1883\r\n".encode(), (six, port)),
                (b"PROXY UNKNOWN\r\n", None),
                (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
            ]
        )
    )


def read(stream: bytes, most: int) -> tuple[bytes, int]:
    """Reads a header as a connection does, at most `most` bytes at a time; what was read, and how often."""
    header, turns = b"", 0
    while wanted := missing(header):
        turns += 1
        piece = stream[len(header) : len(header) + min(wanted, most)]
        assert piece, "it wants more than there is"
        header += piece
    return header, turns


@given(headers(), st.binary(max_size=40), st.integers(1, 300))
def test_not_one_byte_behind_the_header_is_taken(
    header: tuple[bytes, tuple[str, int] | None], behind: bytes, most: int
) -> None:
    raw, named = header
    assert read(raw + behind, most)[0] == raw
    assert client_address(raw) == named


@given(headers())
def test_every_truncation_wants_more(header: tuple[bytes, tuple[str, int] | None]) -> None:
    raw, _ = header
    for size in range(len(raw)):
        assert 0 < missing(raw[:size]) <= len(raw) - size


@given(headers(), st.data())
def test_any_change_is_a_header_or_an_error(header: tuple[bytes, tuple[str, int] | None], data: st.DataObject) -> None:
    """Bad input never raises anything else, and never wants more than the limit."""
    raw = bytearray(header[0])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _is_header_or_error(bytes(raw))


@given(st.binary(max_size=200), st.sampled_from([b"", SIGNATURE, SIGNATURE + b"\x21\x11", b"PROXY ", b"PROXY TCP4 "]))
def test_noise_is_a_header_or_an_error(noise: bytes, start: bytes) -> None:
    _is_header_or_error(start + noise)


def _is_header_or_error(stream: bytes) -> None:
    header = b""
    try:
        while wanted := missing(header):
            assert len(header) + wanted <= HEADER_BYTES_MAX
            piece = stream[len(header) : len(header) + wanted]
            if not piece:
                return
            header += piece
        client_address(header)
    except ProxyHeaderError:
        pass


@pytest.mark.parametrize("start", [b"\x10\x0c\x00\x04MQTT", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"PROXI", b"\r\nQ"])
def test_what_does_not_begin_like_a_header_is_told_at_once(start: bytes) -> None:
    """A client that comes without the proxy need not wait for the time-out."""
    with pytest.raises(ProxyHeaderError) as raised:
        missing(start)
    assert raised.value.is_missing


@pytest.mark.parametrize(
    "header",
    [
        binary(0x11, 0x11, bytes(12)),  # version 1 in the binary form
        binary(0x22, 0x11, bytes(12)),  # neither LOCAL nor PROXY
        binary(0x21, 0x12, bytes(12)),  # datagrams
        binary(0x21, 0x41, bytes(12)),
        binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(35)),
        binary(0x21, 0x11, bytes(HEADER_BYTES_MAX)),
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n",
        b"PROXY TCP4 ::1 ::1 1 1\r\n",
        b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n",
        b"PROXY TCP4 1.2.3.256 1.2.3.4 1 1\r\n",
        b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n",
        b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
        b"PROXY UNKNOWN" + b" " * 100 + b"\r\n",
        b"PROXY TCP4\n1.2.3.4 1.2.3.4 1 1\r\n",
    ],
)
def test_what_is_malformed(header: bytes) -> None:
    with pytest.raises(ProxyHeaderError) as raised:
        client_address(read(header, 4096)[0])
    assert not raised.value.is_missing
