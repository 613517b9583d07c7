"""A client made of encoder and decoder, wired in memory to a ServerConnection: for the tests of the connection."""

import pytest

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.limits import ConnectionLimits
from mqtt.packets import Connect, Packet, Properties, Publish, Will
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed, Event

LIMITS = ConnectionLimits(max_packet_size=1_000, receive_maximum=2, topic_alias_maximum=2, held_bytes_max=200)
WILL = Will("will/topic", b"gone")
versioned = pytest.mark.parametrize("version", [4, 5])


class Client:
    """The other end: sends packets to a ServerConnection, decodes what comes back."""

    def __init__(self, version: int = 5, limits: ConnectionLimits = LIMITS) -> None:
        self.version = version
        self.server = ServerConnection(limits, now=0.0)
        self.decoder = Decoder(1 << 20, version)

    def send(self, *packets: Packet, now: float = 1.0) -> list[Event]:
        return self.server.receive(b"".join(encode(packet, self.version) for packet in packets), now)

    def received(self) -> list[Packet]:
        return self.decoder.feed(self.server.outgoing())

    def connected(
        self, will: Will | None = None, properties: Properties | None = None, keep_alive: int = 10
    ) -> "Client":
        connect = Connect("c", self.version, True, keep_alive, will=will, properties=properties)
        assert self.send(connect) == [connect]
        assert self.server.accept(1.0) == []
        self.received()
        return self


def closed(events: list[Event]) -> Closed:
    """The last event, which has to be the end."""
    assert events
    last = events[-1]
    assert isinstance(last, Closed)
    return last


def publish(packet_id: int, qos: int = 1) -> Publish:
    """An empty message that needs an answer."""
    return Publish("a", b"", qos, packet_id=packet_id)
