"""What a gateway says of a client that it relays, and what its home makes of any bytes (G14, R11)."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ProxyHeaderError
from gateway.host.proxy_protocol import missing
from gateway.host.relay_header import RelayedClient, decode, encode

CLIENTS = st.builds(
    lambda peer, bearer, tls: RelayedClient(peer, bearer, *tls),
    st.sampled_from(["198.51.100.9:4711", "2001:db8::1:4711", "127.0.0.1:0", ""]),
    st.sampled_from(["mqtt", "ws", "quic"]),
    st.sampled_from([(False, None), (True, None)])
    | st.tuples(st.just(True), st.text(st.characters(exclude_categories=["Cs"]), max_size=100)),
)


@given(CLIENTS)
def test_the_home_reads_what_the_relaying_gateway_wrote(client: RelayedClient) -> None:
    header = encode(client)
    assert missing(header) == 0
    assert decode(header) == client


@given(CLIENTS, st.data())
def test_a_header_that_is_cut_off_is_not_complete(client: RelayedClient, data: st.DataObject) -> None:
    header = encode(client)
    cut = data.draw(st.integers(0, len(header) - 1))
    assert missing(header[:cut]) > 0


@given(CLIENTS, st.data())
def test_altered_headers_are_refused_or_read(client: RelayedClient, data: st.DataObject) -> None:
    header = bytearray(encode(client))
    header[data.draw(st.integers(12, len(header) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProxyHeaderError):
        if missing(bytes(header)) == 0:
            assert decode(bytes(header)).bearer in ("mqtt", "ws", "quic")


@pytest.mark.parametrize("header", [b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n", b"PROXY UNKNOWN\r\n"])
def test_version_1_names_no_bearer(header: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        decode(header)
