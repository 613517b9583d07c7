"""Errors of the formats of bundles. The text of each says what was wrong.

WaystationError
└── BundleError
    ├── FormatError         bytes are no bundle, receipt or frame, or exceed a limit
    ├── SignatureError      a signature does not fit, or its signer may not sign this
    ├── SealError           no key of ours opens a payload
    ├── CertificateError    a certificate or key is malformed, or not the authority's
    ├── TokenError          a text is no enrolment token
    └── IssueRefused        the authority gives no certificate for this
"""

from schemas.errors import WaystationError


class BundleError(WaystationError):
    """Base of all errors of bundles and receipts."""


class FormatError(BundleError):
    """Bytes do not follow the format, or a field exceeds its limit."""


class SignatureError(BundleError):
    """A signature does not fit the bytes, or its signer is not entitled to sign them."""


class SealError(BundleError):
    """No key opens a payload: it is sealed to another, or was changed."""


class CertificateError(BundleError):
    """A certificate or a key is malformed, or was not issued by the authority."""


class TokenError(BundleError):
    """A text is no enrolment token, or a token is damaged."""


class IssueRefused(BundleError):
    """A certificate is not issued or renewed: the token or the certificate is expired, revoked or another's."""
