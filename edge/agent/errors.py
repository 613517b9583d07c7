"""Errors of the agent. The text of each is one sentence for the person at the keyboard.

WaystationError
└── AgentError
    ├── AgentNotRunning    no agent answers on the control socket
    ├── ControlError       the control socket cannot be made, or the agent refuses the request
    ├── ListenerError      a listener cannot be opened: its address is in use
    └── EnvelopeError      a message that came from the platform has no valid envelope

Errors of stores are those of :mod:`edge.client.errors`.
"""

from schemas.errors import WaystationError


class AgentError(WaystationError):
    """Base of the agent's errors."""


class AgentNotRunning(AgentError):
    """No agent answers on the control socket."""


class ControlError(AgentError):
    """The control socket cannot be made, or the agent refuses a request."""


class ListenerError(AgentError):
    """A listener cannot be opened."""


class EnvelopeError(AgentError):
    """A message from the platform has no valid envelope; the text is the reason in the log."""
