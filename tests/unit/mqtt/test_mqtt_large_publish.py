"""Messages that are too large for a client of 3.1.1: the payload is never kept, and the exchange ends (M2)."""

import pytest

from mqtt import codes
from mqtt.client_connection import ClientConnection
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Connack, Connect, LargePublish, Packet, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel

VERSION = codes.VERSION_3_1_1
LIMIT = 60
LARGE = [Publish("large/topic", b"x" * 70, qos, packet_id=7 if qos else 0) for qos in (0, 1, 2)]


def large(packet: Publish) -> LargePublish:
    size = len(encode(packet, VERSION))
    return LargePublish(packet.topic, b"", packet.qos, packet.retain, packet.dup, packet.packet_id, None, size)


def decoded(data: bytes, sizes: list[int]) -> list[Packet]:
    """What a decoder makes of the data, that comes in pieces of these sizes in turn."""
    decoder, packets, position = Decoder(LIMIT, VERSION, skips_large=True), list[Packet](), 0
    while position < len(data):
        size = sizes[position % len(sizes)]
        packets += decoder.feed(data[position : position + size])
        assert len(decoder.partial) <= LIMIT, "the beginning of a message that is too large is not kept"
        position += size
    return packets


@pytest.mark.parametrize("packet", LARGE)
def test_it_is_left_out_however_it_comes(packet: Publish) -> None:
    """Beside packets that are not too large, one of which follows in the same bytes."""
    before, after = Publish("a", b"before"), Publish("a", b"after")
    data = b"".join(encode(one, VERSION) for one in (before, packet, packet, after))
    expected = [before, large(packet), large(packet), after]
    for split in range(len(data)):
        decoder = Decoder(LIMIT, VERSION, skips_large=True)
        assert decoder.feed(data[:split]) + decoder.feed(data[split:]) == expected, split
    for sizes in ([1], [2, 3], [50], [7, 1, 90]):
        assert decoded(data, sizes) == expected, sizes


def test_a_payload_of_many_megabytes_takes_no_memory() -> None:
    data = memoryview(encode(Publish("t", bytes(4 << 20), 1, packet_id=3), VERSION))
    decoder, packets = Decoder(LIMIT, VERSION, skips_large=True), list[Packet]()
    for position in range(0, len(data), 10_000):
        packets += decoder.feed(data[position : position + 10_000])
        assert not decoder.partial
    assert packets == [LargePublish("t", b"", 1, packet_id=3, size=len(data))]


@pytest.mark.parametrize(
    "data",
    [
        b"\x32\x7f\xff\xff" + b"x" * 125,  # the topic ends behind the packet
        b"\x32\x7f\x00\x7dx" + b"x" * 124,  # the packet id does
        b"\x36\x7f\x00\x01x" + b"x" * 124,  # QoS 3
        b"\x32\x7f\x00\x01x\x00\x00" + b"x" * 122,  # packet id 0
        b"\x30\x7f\x00\x01+" + b"x" * 124,  # no topic name
        b"\x90\x7f" + b"x" * 127,  # a SUBACK that is too large
    ],
)
def test_it_must_be_well_formed_all_the_same(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decoded(data, [1])
    with pytest.raises(RemoteProtocolError):
        decoded(data, [len(data)])


class Server:
    """A server of 3.1.1 and its client."""

    def __init__(self, session: ClientSession) -> None:
        self.client = ClientConnection(session, Connect("c", VERSION, False), ClientLimits(max_packet_size=LIMIT), 0.0)
        self.client.outgoing()
        assert isinstance(self.say(Connack(session.is_established))[0], Connack)

    def say(self, *packets: Packet) -> list[object]:
        return list(self.client.receive(b"".join(encode(packet, VERSION) for packet in packets), 1.0))

    def sent(self) -> list[Packet]:
        return Decoder(1 << 20, VERSION).feed(self.client.outgoing())


def test_a_server_that_sends_it_again_is_answered_once_and_for_all() -> None:
    """It is acknowledged like others, after those before it, and the connection goes on."""
    server = Server(ClientSession())
    small, first = server.say(Publish("a", b"small", 1, packet_id=6), LARGE[1])
    assert isinstance(small, Publish)
    assert isinstance(first, LargePublish)
    server.client.acknowledge(first)
    assert server.sent() == [], "an earlier message is not acknowledged yet"
    server.client.eof()
    server.client.acknowledge(small)
    server = Server(server.client.session)
    again = Publish(LARGE[1].topic, LARGE[1].payload, 1, dup=True, packet_id=7)
    assert server.say(Publish("a", b"small", 1, dup=True, packet_id=6), again) == []
    assert server.sent() == [Puback(6), Puback(7)]


def test_at_qos_2_the_exchange_ends() -> None:
    server = Server(ClientSession())
    (found,) = server.say(LARGE[2])
    assert isinstance(found, LargePublish)
    server.client.acknowledge(found)
    assert server.sent() == [Pubrec(7)]
    server.client.eof()
    server = Server(server.client.session)
    assert server.say(Publish(LARGE[2].topic, LARGE[2].payload, 2, dup=True, packet_id=7), Pubrel(7)) == []
    assert server.sent() == [Pubrec(7), Pubcomp(7)]
    assert server.say(Pingresp()) == []
