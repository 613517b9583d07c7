"""The platform as agents with an uplink see it: a gateway that takes bundles, message presence, and the recipient."""

import hashlib
from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.bundle import Bundle
from bundles.receipt import Receipt, Role
from bundles.seen import Seen, Verdict
from edge.mesh.presence import Record, merge, record_of
from schemas.events import MessagePresenceEvent

GATEWAY: Final = "gateway"
AWAY_EVERY_S, AWAY_S = 3_600, 180
"""Message presence is out of reach in the first three minutes of each hour: bundles are delivered without a claim then,
and reports wait (M10)."""


def key_of(name: str) -> Ed25519PrivateKey:
    """A key for the simulation, which follows from the name."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"simulation {name}".encode()).digest())


class Platform:
    """`hits` are bundles that the gateway took, `given` messages that the recipient was given, `delivered_at` the time
    of the first delivery by message id."""

    def __init__(self) -> None:
        self._key = key_of(GATEWAY)
        self._seen = Seen()
        self._records: dict[str, Record] = {}
        self._receipts: dict[str, Receipt] = {}
        self.hits = self.given = 0
        self.delivered_at: dict[str, int] = {}

    def signers(self, name: str, role: Role) -> Sequence[Ed25519PublicKey]:
        """Only the gateway signs receipts here."""
        return (self._key.public_key(),) if (name, role) == (GATEWAY, Role.GATEWAY) else ()

    @staticmethod
    def has_presence(now: int) -> bool:
        """Whether message presence is in reach."""
        return now % AWAY_EVERY_S >= AWAY_S

    def record(self, message_id: str) -> Record | None:
        """What message presence knows."""
        return self._records.get(message_id)

    def publish(self, event: MessagePresenceEvent, copies_live_until_us: int) -> None:
        """A report to message presence."""
        new = record_of(event, copies_live_until_us)
        known = self._records.get(event.id)
        self._records[event.id] = new if known is None else merge(known, new)

    def receipt(self, message_id: str) -> Receipt | None:
        """The receipt for a message that message presence has as delivered."""
        record = self._records.get(message_id)
        return self._receipts.get(message_id) if record is not None and record.delivery is not None else None

    def deliver(self, bundle: Bundle, now: int) -> Receipt:
        """The gateway takes a bundle; the recipient sees it if it is new (M14)."""
        bundle_format.verify(bundle, [key_of(bundle.header.originator).public_key()])
        self.hits += 1
        if self._seen.take(bundle.header, now) is Verdict.NEW:
            self.given += 1
            self.delivered_at[bundle.message_id] = now
            receipt = receipt_format.sign(bundle.message_id, Role.GATEWAY, GATEWAY, now * 1000, self._key)
            self._receipts[bundle.message_id] = receipt
        return self._receipts[bundle.message_id]
