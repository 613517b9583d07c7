"""Errors of the mesh. The text of each says what was wrong. Those of the formats: :mod:`bundles.errors`.

WaystationError
└── MeshError
    ├── ConflictError       two different bundles have the same id
    ├── RefusedError        a new message is not accepted: too large, too old, or the store is full
    ├── PeerError           the peer broke the contact protocol: close the contact
    └── LocalContactError   we used a contact wrongly: our bug, never the peer's fault
"""

from schemas.errors import WaystationError


class MeshError(WaystationError):
    """Base of all errors of the mesh."""


class ConflictError(MeshError):
    """Another bundle with the same id, but other contents, is already held: its originator used a number twice."""


class PeerError(MeshError):
    """The peer broke the contact protocol; the text is the reason for the log."""


class LocalContactError(MeshError):
    """This side requested something that the state of the contact does not allow: our bug."""


class RefusedError(MeshError):
    """A new message is not accepted, for the reason in the text: nothing was stored."""
