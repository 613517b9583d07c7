"""Errors of enrolment. The text of each says what was wrong, and what to do.

WaystationError
└── EnrolError
    ├── IdentityFilesError     the files of an identity, or of an authority, are missing, damaged or do not fit together
    ├── EnrolmentRefused       the gateway does not give a certificate, and will not if it is asked again
    └── GatewayNotReached      no answer, or none that can be used: try again
"""

from schemas.errors import WaystationError


class EnrolError(WaystationError):
    """Base of all errors of enrolment."""


class IdentityFilesError(EnrolError):
    """Files are missing, damaged, cannot be written, or do not fit together."""


class EnrolmentRefused(EnrolError):
    """The gateway gives no certificate: the token or the certificate is expired, revoked or another authority's."""


class GatewayNotReached(EnrolError):
    """The gateway did not answer, or not in a way that can be used; nothing has changed here."""
