"""A connection of a client as the server that has it sees it, and what carries its bytes."""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from mqtt.codes import ReasonCode

Refuse: TypeAlias = Callable[[bytes], None]

_WITH_TLS: Final = {"mqtt": "mqtts", "ws": "wss"}


class Transport(Protocol):
    """What carries the bytes of one connection."""

    peer: str
    bearer: str
    """`mqtt`, `ws` or `quic`."""
    uses_tls: bool
    """Whether the client has connected with TLS."""
    certificate: str | None
    """The common name in the subject of the client's verified certificate."""

    refuse: Refuse | None
    """Answers the gateway that relays the client's bytes, instead of MQTT (:mod:`gateway.host.relayed`); None if none
    does."""

    def write(self, data: bytes) -> None: ...

    def hand_over(self, to: "ByteTaker") -> None:
        """Bytes of the client, and what happens to the transport, go to `to` from now on."""
        ...

    def close(self) -> None:
        """Closes once everything written is sent."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def public_bearer(transport: Transport) -> str:
    """The bearer by which the client has connected, one of :data:`schemas.members.BEARERS`."""
    return _WITH_TLS.get(transport.bearer, transport.bearer) if transport.uses_tls else transport.bearer


class ByteTaker(Protocol):
    """What a transport calls."""

    writable: bool
    """Whether the client takes what is written."""

    def data_received(self, data: bytes | memoryview) -> None:
        """From the client; the buffer may be reused afterwards."""
        ...

    def transport_lost(self) -> None:
        """The transport has ended, on either side."""
        ...

    def writing_paused(self) -> None:
        """Too much is written that the client has not taken."""
        ...

    def writing_resumed(self) -> None:
        """It has taken it."""
        ...

    def disconnect(self, reason: ReasonCode) -> None:
        """Ends the connection, because the client broke the transport's protocol."""
        ...


class Connection(Protocol):
    """One client's connection; two are never equal."""

    def tick(self) -> None:
        """Runs twice a second: checks deadlines."""
        ...

    def flush(self) -> None:
        """Writes what is to be sent."""
        ...

    def read_on(self) -> None:
        """Resumes reading if it is paused and may go on."""
        ...

    def hold_deliveries(self) -> None:
        """The gateway stops: no new deliveries."""
        ...

    def stop_reading(self) -> None:
        """The gateway stops: nothing more is taken from the client."""
        ...

    @property
    def awaits_client(self) -> bool:
        """Whether the client has something to acknowledge."""
        ...

    @property
    def awaits_kafka(self) -> bool:
        """Whether the client is owed an answer."""
        ...

    def disconnect(self, reason: ReasonCode) -> None:
        """Ends it."""
        ...
