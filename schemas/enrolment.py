"""How a device gets and renews its certificate from a gateway; JSON, bytes as base64 (M5, M17).

| request | body | answer |
|---|---|---|
| `POST /v1/enrolments` | :class:`EnrolmentRequest` | :class:`EnrolmentAnswer` |
| `POST /v1/enrolments/renewal` | :class:`RenewalRequest` | :class:`EnrolmentAnswer` |

The token, or the certificate with a request signed by its key, is the credential. An answer with another status than
200 is a problem (RFC 9457). Both may be repeated.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.mesh_api import MeshState

ENROLMENTS_PATH: Final = "/v1/enrolments"
RENEWAL_PATH: Final = "/v1/enrolments/renewal"

REQUEST_BYTES_MAX: Final = 16_384
"""Of a body. A token, a certificate and a request fit."""
ANSWER_BYTES_MAX: Final = 8 << 20
"""Of an answer: the largest revocation list, as base64, and certificates fit."""

AUTHORITY_FILE: Final = "authority.pem"
AUTHORITY_KEY_FILE: Final = "authority-key.pem"
REVOCATIONS_FILE: Final = "revocations.bin"
GATEWAYS_DIRECTORY: Final = "gateways"
"""What is in an authority's directory: its certificate, its key, the revocation list, and certificates of gateways."""

Token = Annotated[str, Meta(min_length=1, max_length=1024)]
Der = Annotated[bytes, Meta(min_length=1, max_length=4096)]
SealingKey = Annotated[bytes, Meta(min_length=32, max_length=32)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class EnrolmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`token`: :mod:`bundles.enrolment_token`; `request`: a certificate request (PKCS #10, DER), signed by the new
    key; `sealing_key`: X25519, 32 bytes."""

    token: Token
    request: Der
    sealing_key: SealingKey


class RenewalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`certificate`: the present one (DER); `request`: signed by its key; `sealing_key`: that of the certificate, or a
    new one; `revocations`: the number of the list that the device has, which need not be sent again."""

    certificate: Der
    request: Der
    sealing_key: SealingKey
    revocations: Number = 0


class EnrolmentAnswer(msgspec.Struct, frozen=True):
    """`certificate`: the new one (DER); `authority`: the authority's (DER); `mesh`: the gateways' certificates, and the
    revocation list unless the device has it."""

    certificate: bytes
    authority: bytes
    mesh: MeshState
