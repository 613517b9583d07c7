"""Errors of the gateway.

WaystationError
└── GatewayError
    ├── BusError              Kafka refused something that will not mend itself
    ├── SpoolError            the SQLite spool cannot be opened or written
    ├── NotAdmitted           a client may not come in: tell it `reason`
    └── ProxyHeaderError      a proxy did not say, or not as it must, who its client is: close the connection
"""

from mqtt.codes import ReasonCode
from schemas.errors import WaystationError


class GatewayError(WaystationError):
    """Base of all errors raised by the gateway."""


class BusError(GatewayError):
    """Kafka refused something that will not mend itself: a missing topic, no authorisation."""


class SpoolError(GatewayError):
    """The spool cannot be opened, read or written; the text names the file and the cause."""


class NotAdmitted(GatewayError):
    """The client may not come in, or not into this session; `reason` is what CONNACK says."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ProxyHeaderError(GatewayError):
    """A proxy named its client wrongly; or, if `is_missing`, not at all."""

    def __init__(self, detail: str, *, is_missing: bool = False) -> None:
        super().__init__(detail)
        self.is_missing = is_missing
