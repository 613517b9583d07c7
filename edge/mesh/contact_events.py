"""What a contact reports. `Received` and `FirstReceiptsTaken` ask for an answer; what the others report has happened
already."""

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from bundles.bundle import Bundle
from bundles.certificates import Certificate
from bundles.receipt import Receipt
from bundles.revocations import Revocations
from edge.mesh.contact_frames import Hello, Reason
from edge.mesh.held import Held


class EndedBy(Enum):
    """Who ended a contact."""

    US = auto()
    PEER = auto()
    LOSS = auto()  # the link broke
    SILENCE = auto()  # the peer owed an answer for too long
    FAULT = auto()  # the peer broke the protocol


class Introduced(NamedTuple):
    """The peer's hello."""

    hello: Hello


class PeerHolds(NamedTuple):
    """Ids of the peer's summary. An agent with an uplink asks message presence for them, takes the receipts of those
    delivered, and calls `refresh`."""

    ids: tuple[str, ...]


class ReceiptTaken(NamedTuple):
    """A new receipt, verified; the bundle is dropped. Write it down. `dropped`: the bundle, if it was here."""

    receipt: Receipt
    dropped: Held | None = None


class FirstReceiptsTaken(NamedTuple):
    """All receipts that the peer sends before its summary have come. Make sure that they are durable, those too that
    were known, then call `receipts_stored`: our summary says that we have them, and the peer sends them no more."""


class ReceiptRefused(NamedTuple):
    """A receipt that is not valid; nothing is dropped for it."""

    receipt: Receipt
    detail: str


class CertificateTaken(NamedTuple):
    """A certificate that was not known, verified. Write it down."""

    certificate: Certificate


class RevocationsTaken(NamedTuple):
    """A newer revocation list, verified. Write it down, then look at the certificate with which the peer opened the
    link: close the contact if it is revoked, and call `not_stored` for what else it has sent."""

    revocations: Revocations


class Received(NamedTuple):
    """A verified bundle. Make it durable with its copies, then call `stored`; otherwise `not_stored`."""

    bundle: Bundle
    copies: int | None


class Given(NamedTuple):
    """The peer has stored a bundle of which it was given so many copies. Write the new budget down."""

    message_id: str
    copies: int


class Declined(NamedTuple):
    """The peer does not take a bundle; the copies stay here."""

    message_id: str
    reason: Reason


class Closed(NamedTuple):
    """The contact has ended; always the last event."""

    by: EndedBy
    detail: str


Event: TypeAlias = (
    Introduced
    | PeerHolds
    | ReceiptTaken
    | FirstReceiptsTaken
    | ReceiptRefused
    | CertificateTaken
    | RevocationsTaken
    | Received
    | Given
    | Declined
    | Closed
)
