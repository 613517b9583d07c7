"""Errors of the mesh. The text of each says what was wrong.

WaystationError
└── MeshError
    ├── FormatError         bytes are no bundle, receipt or frame, or exceed a limit
    ├── SignatureError      a signature does not fit, or its signer may not sign this
    ├── ConflictError       two different bundles have the same id
    ├── RefusedError        a new message is not accepted: too large, too old, or the store is full
    ├── PeerError           the peer broke the contact protocol: close the contact
    └── LocalContactError   we used a contact wrongly: our bug, never the peer's fault
"""

from schemas.errors import WaystationError


class MeshError(WaystationError):
    """Base of all errors of the mesh."""


class FormatError(MeshError):
    """Bytes do not follow the format, or a field exceeds its limit."""


class SignatureError(MeshError):
    """A signature does not fit the bytes, or its signer is not entitled to sign them."""


class ConflictError(MeshError):
    """Another bundle with the same id, but other contents, is already held: its originator used a number twice."""


class PeerError(MeshError):
    """The peer broke the contact protocol; the text is the reason for the log."""


class LocalContactError(MeshError):
    """This side requested something that the state of the contact does not allow: our bug."""


class RefusedError(MeshError):
    """A new message is not accepted, for the reason in the text: nothing was stored."""
