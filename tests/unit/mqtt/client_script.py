"""A server that says what a test says to one client connection, however wrong, and shows what the client answers."""

from typing import Any

from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.client_state import State
from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Packet

PING_TIMEOUT_S = 5.0
LIMITS = ClientLimits(connect_timeout_s=3.0, ping_timeout_s=PING_TIMEOUT_S)


class Script:
    """A server that says what the test says, to one client connection."""

    def __init__(self, version: int = 5, session: ClientSession | None = None, **connect: Any) -> None:
        self.version = version
        self.session = session or ClientSession()
        self.client = ClientConnection(self.session, Connect("c", version, **connect), LIMITS, 0.0)
        self._decoder = Decoder(1 << 20, version)
        self._decoder_in = Decoder(1 << 20)
        self.sent()

    def say(self, *packets: Packet, now: float = 1.0) -> list[Any]:
        return self.client.receive(b"".join(encode(packet, self.version) for packet in packets), now)

    def sent(self) -> list[Packet]:
        """What the client sent since."""
        return self._decoder_in.feed(self.client.outgoing())

    def connected(self, **properties: Any) -> "Script":
        answer = Connack(False, ReasonCode.SUCCESS, properties or None)
        assert self.say(answer) == [answer]
        return self

    def fault(self, *packets: Packet) -> Closed:
        """What the client makes of packets that break the protocol."""
        *_, closed = self.say(*packets)
        assert isinstance(closed, Closed)
        assert closed.by is EndedBy.FAULT
        assert self.client.state is State.CLOSED
        if self.version == 5:
            (last,) = [packet for packet in self.sent() if isinstance(packet, Disconnect)]
            assert last.reason_code == closed.reason
        return closed
