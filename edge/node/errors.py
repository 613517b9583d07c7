"""Errors of a node. The text of each says what happened and what to do.

WaystationError
└── NodeError
    ├── NodeClosed     the node is not open yet, or no longer
    ├── NotForUs       a bundle from a gateway is for another agent
    ├── LinkRefused    a peer's certificate is not accepted, or there is no capacity for its link
    └── DiscoveryError multicast DNS cannot be used: there is no network, perhaps

A message that is not accepted raises :class:`edge.client.errors.NotAccepted`, a file that cannot be used StoreError.
"""

from schemas.errors import WaystationError


class NodeError(WaystationError):
    """Base of all errors of a node."""


class NodeClosed(NodeError):
    """The node is not open yet, or no longer."""


class NotForUs(NodeError):
    """A bundle was given to this agent, but is for another one."""


class LinkRefused(NodeError):
    """A link is closed before a contact begins, for the reason in the text."""


class DiscoveryError(NodeError):
    """Peers cannot be looked for in the local network."""
