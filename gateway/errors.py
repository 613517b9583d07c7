"""Errors of the gateway.

WaystationError
└── GatewayError
    ├── BusError              Kafka refused something, and a retry will not help
    ├── SpoolError            the SQLite spool cannot be opened or written
    ├── FeedConflict          what is asked of a feed contradicts its state; `reason` is a word for programs
    ├── FeedLimitReached      as many subscribers or administrative messages as allowed are known
    ├── NotAdmitted           a client is refused: send it `reason`
    ├── LinkProtocolError     the other side of a link sends what no gateway would: close it
    └── ProxyHeaderError      a proxy sent a missing or wrong header about its client: close the connection
"""

from mqtt.codes import ReasonCode
from schemas.errors import WaystationError


class GatewayError(WaystationError):
    """Base of all errors raised by the gateway."""


class BusError(GatewayError):
    """Kafka refused something, and a retry will not help: a missing topic, no authorisation."""


class SpoolError(GatewayError):
    """The spool cannot be opened, read or written; the text names the file and the cause."""


class FeedConflict(GatewayError):
    """What is asked of a redundant feed contradicts its state. `reason` is a word for programs."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class FeedLimitReached(GatewayError):
    """As many subscribers or administrative messages of redundant feeds as allowed are known."""


class NotAdmitted(GatewayError):
    """The client is refused, altogether or for this session; `reason` goes into CONNACK."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class LinkProtocolError(GatewayError):
    """The other side of a link between gateways sends what no gateway would."""


class ProxyHeaderError(GatewayError):
    """A proxy identified its client wrongly or, if `is_missing`, not at all."""

    def __init__(self, detail: str, *, is_missing: bool = False) -> None:
        super().__init__(detail)
        self.is_missing = is_missing
