"""Errors of the agent. The text of each is one sentence for the person at the keyboard.

WaystationError
└── AgentError
    ├── AgentNotRunning    no agent answers on the control socket
    ├── ControlError       the control socket cannot be made, or the agent refuses the request
    ├── ListenerError      a listener cannot be opened: its address is in use
    ├── NotDelivered       a message that was waited for is refused, expired, or still on its way
    ├── SessionRefused     an MQTT client gets no session; `reason` is for CONNACK
    └── EnvelopeError      a message that came from the platform has no valid envelope

Errors of stores are those of :mod:`edge.client.errors`.
"""

from mqtt.codes import ReasonCode
from schemas.errors import WaystationError


class AgentError(WaystationError):
    """Base of the agent's errors."""


class AgentNotRunning(AgentError):
    """No agent answers on the control socket."""


class ControlError(AgentError):
    """The control socket cannot be made, or the agent refuses a request."""


class ListenerError(AgentError):
    """A listener cannot be opened."""


class NotDelivered(AgentError):
    """A message that was waited for is refused, has expired, or is still on its way."""


class SessionRefused(AgentError):
    """An MQTT client gets no session."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class EnvelopeError(AgentError):
    """A message from the platform has no valid envelope; the text is the reason in the log."""
