"""Fuzz target: the decoder and the encoder (G11).

Input: a byte that chooses the version (None as on a server, 4, 5) and the largest packet, a byte that says how the
stream is cut the second time, and the stream. What must hold:

* nothing but RemoteProtocolError, and with a reason that CONNACK or DISCONNECT can carry;
* the same bytes give the same packets and the same fault, however they are cut;
* what is decoded can be encoded, and is decoded from that again to the same;
* what the decoder keeps is never larger than a packet may be.
"""

from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Connect, Packet

VERSIONS = (None, 4, 5, 5)
SIZES = (1 << 20, 64)
HEADER_BYTES = 2

_SAYABLE = {*ALLOWED_REASONS[PacketType.CONNACK], *ALLOWED_REASONS[PacketType.DISCONNECT]}


def run(data: bytes) -> None:
    """One execution."""
    if len(data) < HEADER_BYTES:
        return
    version, size = VERSIONS[data[0] & 3], SIZES[data[0] >> 2 & 1]
    stream = data[HEADER_BYTES:]
    whole = Decoder(size, version)
    packets = _feed(whole, stream)
    cut = Decoder(size, version)
    assert _in_parts(cut, stream, data[1], size) == packets, "the cut changes the packets"
    assert cut.version == whole.version
    _check_same_fault(whole.error, cut.error)
    for packet in packets:
        _check_round_trip(packet, whole.version or version)


def _feed(decoder: Decoder, data: bytes) -> list[Packet]:
    try:
        return decoder.feed(data)
    except RemoteProtocolError:
        assert decoder.error is not None
        return []


def _in_parts(decoder: Decoder, stream: bytes, step: int, size: int) -> list[Packet]:
    packets: list[Packet] = []
    step = 1 + step % 40
    for at in range(0, len(stream), step):
        packets += _feed(decoder, stream[at : at + step])
        if decoder.error is not None:
            assert decoder._partial is None or len(decoder._partial) <= size, "kept after a fault"
            break
        assert decoder._partial is None or len(decoder._partial) <= size, "more is kept than a packet may have"
    return packets


def _check_same_fault(one: RemoteProtocolError | None, other: RemoteProtocolError | None) -> None:
    assert (one is None) == (other is None), "the cut changes whether there is a fault"
    if one is not None and other is not None:
        assert (one.reason, one.detail) == (other.reason, other.detail), "the cut changes the fault"
        assert one.reason in _SAYABLE, one.reason
        assert one.reason >= ReasonCode.UNSPECIFIED_ERROR


def _check_round_trip(packet: Packet, version: int | None) -> None:
    told = packet.version if isinstance(packet, Connect) else version
    assert told is not None
    decoded = Decoder(1 << 24, told).feed(encode(packet, told))
    assert decoded == [packet], "decode(encode(x)) is not x"
    assert type(decoded[0]) is type(packet)
