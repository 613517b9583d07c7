"""Every packet of both versions, cut at every byte, and fed a byte at a time (G11)."""

import pytest

from mqtt.codes import PacketType
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Packet, Pingreq
from tests.fuzz.seeds import VERSION_4, VERSION_5

MAX_SIZE = 1 << 20
PACKETS = [
    pytest.param(version, packet, id=f"v{version}-{type(packet).__name__.lower()}-{number}")
    for version, packets in ((4, VERSION_4), (5, VERSION_5))
    for number, packet in enumerate(packets)
]


def test_every_type_of_packet_is_among_them() -> None:
    """AUTH is of 5.0 only (2.1.2)."""
    for version, packets in ((4, VERSION_4), (5, VERSION_5)):
        found = {encode(packet, version)[0] >> 4 for packet in packets}
        assert found == {int(kind) for kind in PacketType if version == 5 or kind is not PacketType.AUTH}


@pytest.mark.parametrize(("version", "packet"), PACKETS)
def test_cut_at_every_byte(version: int, packet: Packet) -> None:
    """The first part gives only what is whole; the rest completes the packet."""
    data, before = encode(packet, version), encode(Pingreq(), version)
    for at in range(len(data)):
        decoder = Decoder(MAX_SIZE, version)
        assert decoder.feed(before + data[:at]) == [Pingreq()]
        assert decoder.feed(data[at:] + before) == [packet, Pingreq()]
        assert decoder.error is None


@pytest.mark.parametrize(("version", "packet"), PACKETS)
def test_one_byte_at_a_time(version: int, packet: Packet) -> None:
    """Nothing until the last byte; then the packet, twice if it comes twice."""
    data, decoder = encode(packet, version), Decoder(MAX_SIZE, version)
    for _ in range(2):
        for at in range(len(data) - 1):
            assert decoder.feed(data[at : at + 1]) == []
        assert decoder.feed(data[-1:]) == [packet]


@pytest.mark.parametrize(("version", "packet"), PACKETS)
def test_a_length_that_is_shorter_than_the_fields(version: int, packet: Packet) -> None:
    """Each body cut at every byte, under a remaining length that agrees: another packet, or the peer's fault."""
    data = encode(packet, version)
    assert data[1] < 128 or data[2] < 128
    body = data[2:] if data[1] < 128 else data[3:]
    for at in range(min(len(body), 127)):
        decoder = Decoder(MAX_SIZE, version)
        try:
            packets = decoder.feed(bytes((data[0], at)) + body[:at])
        except RemoteProtocolError:
            assert decoder.error is not None
            continue
        assert len(packets) == 1
        assert Decoder(MAX_SIZE, version).feed(encode(packets[0], version)) == packets
