"""Errors of the MQTT protocol cores.

WaystationError
└── ProtocolError
    ├── LocalProtocolError    we used a protocol core wrongly: our bug, never the peer's fault
    ├── RemoteProtocolError   the peer broke the protocol: close its connection with `reason`
    ├── ServerLimitError      the server's limits rule out the packet: nothing was sent, `reason` says why
    └── QueueFullError        too many unacknowledged messages: nothing was queued, publish again later
"""

from mqtt.codes import ReasonCode
from schemas.errors import WaystationError


class ProtocolError(WaystationError):
    """Base of all errors raised by the protocol cores."""


class LocalProtocolError(ProtocolError):
    """This side requested something that the protocol, or the state of the connection, does not allow: our bug."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; `reason` is for CONNACK or DISCONNECT (MQTT 5.0, 4.13), `detail` says why."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(f"{reason.name} (0x{reason:02X}): {detail}")
        self.reason = reason
        self.detail = detail


class ServerLimitError(ProtocolError):
    """The server's CONNACK rules out a packet to be sent (MQTT 5.0, 3.2.2.3); `reason` is the code it would answer."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(f"{reason.name} (0x{reason:02X}): {detail}")
        self.reason = reason
        self.detail = detail


class QueueFullError(ProtocolError):
    """A client's queue of unacknowledged messages has no capacity for another one."""
