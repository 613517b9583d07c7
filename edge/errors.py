"""Errors of the MQTT client and of the other bearers. The text of each says what happened and is meant for people.

WaystationError
└── MqttClientError
    ├── Unreachable        no network connection: nobody listens, no route, a handshake (TLS, WebSocket, QUIC) failed
    ├── ConnectRefused     the server answered CONNECT with a failure
    ├── ConnectionLost     the connection has ended, or there is none; the server's reason if it gave one
    ├── AnswerFault        an answer over HTTP is not one of a gateway, or did not arrive completely
    ├── ReceivedTooLarge   the server has sent a message that is larger than the client takes
    ├── PublishRefused     the server refused a message
    └── SubscribeRefused   the server refused a subscription
"""

from collections.abc import Mapping

from mqtt.client_events import Closed
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import Properties
from schemas.errors import WaystationError


class MqttClientError(WaystationError):
    """Base of all errors of the MQTT client."""


class Unreachable(MqttClientError):
    """There is no network connection to the server."""


class AnswerFault(MqttClientError):
    """What has answered over HTTP is no gateway of Waystation, or its answer did not arrive completely or in time."""


class _Ended(MqttClientError):
    """`closed` is how the connection ended."""

    def __init__(self, closed: Closed) -> None:
        super().__init__(closed.detail)
        self.closed = closed

    @property
    def reason(self) -> ReasonCode | ConnectReturnCode:
        """The server's reason code, or our own."""
        return self.closed.reason

    @property
    def properties(self) -> Properties:
        """The properties that the server sent with it: `reason_string`, `server_reference`."""
        return self.closed.properties or {}


class ConnectRefused(_Ended):
    """The server answered CONNECT with the failure `reason`."""


class ConnectionLost(_Ended):
    """The connection has ended; `closed.by` says who ended it. Unacknowledged messages are still in the session."""


class ReceivedTooLarge(MqttClientError):
    """A message from the server was larger than the client takes, and its payload was discarded. `topic`, and `size`:
    bytes of its packet."""

    def __init__(self, topic: str, size: int) -> None:
        super().__init__(f"a message of {size:,} bytes to {topic!r:.100} is larger than this client takes, and is lost")
        self.topic, self.size = topic, size


class PublishRefused(MqttClientError):
    """The server answered a message with `reason`, 0x80 or above; it has not accepted the message."""

    def __init__(self, reason: ReasonCode, properties: Properties | None) -> None:
        text = (properties or {}).get("reason_string", "")
        super().__init__(f"the server refused the message: {reason.name}" + (f" ({text})" if text else ""))
        self.reason = reason
        self.properties = properties or {}


class SubscribeRefused(MqttClientError):
    """The server refused at least one filter; `reasons` has the reason code of each. The others are in force."""

    def __init__(self, reasons: Mapping[str, ReasonCode], properties: Properties | None) -> None:
        refused = [f"{name} ({reason.name})" for name, reason in reasons.items() if reason >= 0x80]
        text = (properties or {}).get("reason_string", "")
        super().__init__(f"the server refused {', '.join(refused)}" + (f": {text}" if text else ""))
        self.reasons = reasons
