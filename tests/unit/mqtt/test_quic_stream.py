"""MQTT's byte stream on a QUIC connection: both ends in memory, and a peer that breaks the rules (G11)."""

from collections.abc import Callable

import pytest
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import AlertDescription

from mqtt.quic_stream import STREAM_ID, QuicStream, crypto_error
from tests.unit.mqtt.quic_pair import CLIENT, IDLE_S, WINDOW, QuicPair

BLOCK = bytes(range(256)) * 64


def connected(**options: object) -> QuicPair:
    pair = QuicPair(**options)  # type: ignore[arg-type]
    pair.exchange()
    assert pair.client.is_open
    assert pair.server.is_open
    return pair


def test_bytes_go_both_ways_and_the_end_is_seen() -> None:
    pair = connected()
    pair.client.write(b"connect")
    pair.exchange()
    assert pair.server.read(100) == b"connect"
    pair.server.write(b"connack")
    pair.server.finish()
    pair.client.finish()
    pair.exchange()
    assert pair.client.read(100) == b"connack"
    assert pair.client.has_eof
    assert pair.server.has_eof
    assert pair.client.is_delivered
    assert pair.server.is_delivered
    pair.client.close()
    pair.exchange()
    assert pair.server.end == (QuicErrorCode.NO_ERROR, "")


def test_what_is_read_in_parts_is_whole() -> None:
    pair = connected()
    pair.client.write(BLOCK)
    pair.exchange()
    parts = []
    while data := pair.server.read(1000):
        parts.append(data)
    assert b"".join(parts) == BLOCK
    assert max(map(len, parts)) == 1000


def test_a_reader_that_pauses_holds_no_more_than_the_window() -> None:
    """However much it has read before: aioquic's own limits double with it."""
    pair = connected()
    sent = received = 0
    for _ in range(100):
        pair.client.write(BLOCK)
        sent += len(BLOCK)
        pair.exchange()
        received += len(pair.server.read(WINDOW))
    pair.client.write(BLOCK * 100)
    sent += len(BLOCK) * 100
    pair.exchange(30.0)
    assert 0 < pair.server.unread <= WINDOW
    assert pair.client.buffered >= len(BLOCK) * 100 - WINDOW
    while received < sent:
        data = pair.server.read(WINDOW)
        assert data, "it goes on once it is read"
        received += len(data)
        pair.exchange()
    assert pair.client.buffered == 0
    assert received == sent


def test_what_is_not_acknowledged_is_counted() -> None:
    pair = connected()
    pair.client.write(b"hello")
    pair.exchange()
    pair.is_cut = True
    pair.server.write(BLOCK)
    pair.exchange(5.0)
    assert pair.server.buffered == len(BLOCK)
    pair.is_cut = False
    pair.exchange(20.0)
    assert pair.server.buffered == 0


def test_a_client_that_moves_stays_connected() -> None:
    """By itself, with another connection id; or because a NAT has given it another address, unseen by it."""
    pair = connected()
    ids = {connection_id for connection_id, is_in_use in pair.routes.items() if is_in_use}
    pair.client_address = ("192.0.2.77", 4242)
    pair.client.move()
    pair.client.write(b"moved")
    pair.exchange()
    assert pair.server.peer_address == ("192.0.2.77", 4242)
    assert {connection_id for connection_id, is_in_use in pair.routes.items() if is_in_use} != ids
    pair.client_address = ("192.0.2.77", 5353)
    pair.client.write(b" and again")
    pair.exchange()
    assert pair.server.peer_address == ("192.0.2.77", 5353)
    pair.server.write(b"welcome")
    pair.exchange()
    assert pair.server.read(100) == b"moved and again"
    assert pair.client.read(100) == b"welcome"


def test_an_idle_connection_lives_and_a_dead_one_ends() -> None:
    pair = connected()
    pair.exchange(20 * IDLE_S)
    assert pair.client.end is None
    assert pair.server.end is None
    pair.is_cut = True
    pair.exchange(3 * IDLE_S)
    assert pair.server.end is not None
    assert pair.client.end is not None


def test_a_peer_without_an_idle_time_out() -> None:
    """RFC 9000, 18.2: it says 0, as EMQX does."""
    pair = connected()
    pair.server._quic._remote_max_idle_timeout = 0.0
    pair.exchange(20.0)
    assert pair.server.end is None


@pytest.mark.parametrize("protocols", [["h3"], ["mqtt5", "h3"], None])
def test_another_protocol_is_refused(protocols: list[str] | None) -> None:
    pair = QuicPair(alpn_protocols=protocols)
    pair.exchange()
    assert not pair.server.is_open
    assert pair.server.end is not None
    assert pair.server.end[0] == crypto_error(AlertDescription.no_application_protocol)
    assert pair.client.end is not None


def _second_stream(client: QuicStream) -> None:
    client._quic._remote_max_streams_bidi = 10
    client._quic.send_stream_data(4, b"x")


def _unidirectional(client: QuicStream) -> None:
    client._quic._remote_max_streams_uni = 10
    client._quic.send_stream_data(2, b"x")


def _datagram(client: QuicStream) -> None:
    client._quic.send_datagram_frame(b"x")


def _reset(client: QuicStream) -> None:
    client._quic.reset_stream(STREAM_ID, 1)


def _stop(client: QuicStream) -> None:
    client._quic.stop_stream(STREAM_ID, 1)


def _beyond_the_window(client: QuicStream) -> None:
    stream = client._quic._streams[STREAM_ID]
    client._quic._remote_max_data = stream.max_stream_data_remote = 1 << 40
    client.write(BLOCK * 100)


@pytest.mark.parametrize(
    ("misbehave", "code"),
    [
        (_second_stream, QuicErrorCode.STREAM_LIMIT_ERROR),
        (_unidirectional, QuicErrorCode.STREAM_LIMIT_ERROR),
        (_datagram, QuicErrorCode.PROTOCOL_VIOLATION),
        (_reset, QuicErrorCode.APPLICATION_ERROR),
        (_stop, QuicErrorCode.APPLICATION_ERROR),
        (_beyond_the_window, QuicErrorCode.FLOW_CONTROL_ERROR),
    ],
)
def test_who_breaks_the_rules_is_told_and_what_came_before_is_kept(
    misbehave: Callable[[QuicStream], None], code: QuicErrorCode
) -> None:
    pair = connected()
    pair.client.write(b"before")
    pair.exchange()
    misbehave(pair.client)
    pair.exchange()
    assert pair.server.end is not None
    assert pair.server.end[0] == code
    assert pair.client.end is not None
    assert pair.client.end[0] == code
    assert pair.server.read(6) == b"before"
    pair.server.write(b"dropped")
    pair.server.finish()
    assert pair.server.outgoing(pair.now) == []


def test_a_second_stream_after_the_first_has_ended() -> None:
    pair = connected()
    for end in (pair.client, pair.server):
        end.write(b"all")
        pair.exchange()
        end.finish()
    pair.exchange()
    _second_stream(pair.client)
    pair.exchange()
    assert pair.server.end is not None
    assert pair.server.end[0] == QuicErrorCode.STREAM_LIMIT_ERROR


def test_no_session_is_resumed() -> None:
    """So there is no 0-RTT data, which could be replayed."""
    tickets: list[object] = []
    pair = QuicPair()
    pair.client._quic._session_ticket_handler = tickets.append
    pair.exchange()
    assert pair.client.is_open
    assert tickets == []


@pytest.mark.parametrize("shows", [True, False])
def test_a_client_certificate_is_asked_for(shows: bool) -> None:
    source = QuicPair().server._quic.configuration
    own = {"certificate": source.certificate, "private_key": source.private_key} if shows else {}
    pair = connected(asks_certificate=True, **own)
    assert pair.server.certificates == ((source.certificate, []) if shows else None)


def test_damaged_datagrams_are_dropped() -> None:
    pair = connected()
    pair.client.write(b"whole")
    for datagram, _ in pair.client.outgoing(pair.now):
        for position in range(0, len(datagram), 7):
            damaged = bytearray(datagram)
            damaged[position] ^= 0x40
            pair.server.receive(bytes(damaged), CLIENT, pair.now)
            pair.server.receive(datagram[:position], CLIENT, pair.now)
    pair.server.advance()
    assert pair.server.end is None
    assert pair.server.unread == 0
    pair.exchange(5.0)
    assert pair.server.read(100) == b"whole"
