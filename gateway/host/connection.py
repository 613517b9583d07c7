"""A connection of a client as the server that has it sees it, and what carries its bytes."""

from typing import Protocol

from mqtt.codes import ReasonCode


class Transport(Protocol):
    """What carries the bytes of one connection."""

    peer: str
    bearer: str
    """`mqtt`, `ws` or `quic`."""
    certificate: str | None
    """The common name in the subject of the client's verified certificate."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Closes once everything written is sent."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


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
