"""What one agent carries: bundles with their copy budgets, receipts, and what it knows of encounters (M6-M8).

This is the state that outlives contacts; a contact (:mod:`edge.mesh.contact`) works on it, and the agent's store makes
it durable: what :class:`edge.mesh.contact.Received`, `Given` and `ReceiptTaken` report is written down, then answered.

**A bundle leaves in two ways only: its lifetime has passed, or there is a verified receipt.** Giving a copy away never
removes it; neither does a full store, a peer's word, or that no application is there to take it.

A budget is reserved when copies are offered, spent when the peer has stored them, and free again in every other case:
a lost answer can make copies more, never less.
"""

from collections.abc import Callable, Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.bundle import Bundle, Header
from bundles.certificates import Certificate
from bundles.errors import SignatureError
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Receipt, Role, Signers, VerifiedReceipt
from edge.mesh.contact_frames import UNLIMITED, Hello, Offer, Reason
from edge.mesh.encounters import Encounters
from edge.mesh.errors import ConflictError, RefusedError
from edge.mesh.held import Held, HeldById, HeldWatcher, InMemory
from edge.mesh.known_receipts import KnownReceipts
from edge.mesh.known_to_peers import OURS, KnownToPeers, Peer
from edge.mesh.limits import MeshLimits
from edge.mesh.set_aside import SetAside
from edge.mesh.spray import FOR_RECIPIENT, Candidate, SprayPolicy
from edge.mesh.unknown_receipts import UnknownReceipts

__all__ = ["Carrier", "Held", "HeldWatcher", "InMemory", "Originators"]

Originators = Callable[[str], Sequence[Ed25519PublicKey]]
"""The keys of an originator, by its certificates and the revocation list; none if there is none that is valid."""


class Carrier:
    """The bundles and receipts of the agent `name`, whose store is `incarnation`. Times are seconds of any clock that
    never goes back. `has_uplink`: whether a gateway is reachable now. `certificates`, of which `originators` and
    `signers` are methods then, travel at contacts; without them (in the simulation) none are sent or taken."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        originators: Originators,
        signers: Signers,
        limits: MeshLimits | None = None,
        policy: SprayPolicy | None = None,
        certificates: KnownCertificates | None = None,
    ) -> None:
        self.name, self.incarnation = name, incarnation
        self.limits, self.policy = limits or MeshLimits(), policy or SprayPolicy()
        self.encounters = Encounters()
        self.receipts = KnownReceipts(self.limits.receipts, self.limits.peers)
        self.unknown_receipts = UnknownReceipts(self.limits.unknown_receipts)
        self.certificates = certificates
        self.certificates_known = KnownToPeers(self.limits.peers)
        self.has_uplink = False
        self._originators, self._signers = originators, signers
        self._held = self._new_table()
        self._arriving = SetAside(self.limits.idle_s)
        self._watchers: list[HeldWatcher] = []
        self._bytes = 0

    @classmethod
    def with_certificates(
        cls,
        name: str,
        incarnation: int,
        known: KnownCertificates,
        limits: MeshLimits | None = None,
        policy: SprayPolicy | None = None,
    ) -> "Carrier":
        """A carrier that goes by these certificates and their revocation list, and passes them on."""
        return cls(name, incarnation, known.originator_keys, known.signer_keys, limits, policy, known)

    # -- bundles -------------------------------------------------------------------------------------------------------

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def stored_bytes(self) -> int:
        """The size of all bundles, encoded."""
        return self._bytes

    def held(self, message_id: str) -> Held | None:
        """What is held of a message."""
        return self._held.get(message_id)

    def all_held(self) -> Iterable[Held]:
        """All of them, oldest first; nothing may be added or removed meanwhile."""
        return self._held.values()

    def watch(self, watcher: HeldWatcher) -> None:
        """`watcher` is told of each change from now on."""
        self._watchers.append(watcher)

    def ids(self) -> list[str]:
        """The ids of all messages that are held."""
        return list(self._held)

    def is_ready(self, message_ids: Iterable[str]) -> bool:
        """Whether the first of these can be encoded now. A carrier that keeps ciphertexts on disk overrides this: it
        says no, and its driver loads the first of them and calls `outgoing` again."""
        return True

    def submit(self, bundle: Bundle, now: float) -> None:
        """Takes a new message of this agent. Raises RefusedError with the reason (M2), or ConflictError."""
        reason = self._own_limit_reason(bundle.header, bundle.size, bundle.age_s)
        if reason is not None:
            raise RefusedError(f"message {bundle.message_id} is not accepted: {reason.name.lower().replace('_', ' ')}")
        self.add(bundle, self.limits.copies or None, now)

    def refusal(self, offer: Offer, now: float) -> Reason | None:
        """Why an offered bundle is not wanted; None if it is (M6)."""
        header, message_id = offer.header, offer.header.message_id
        if self._is_over(header, offer.copies):
            return Reason.DELIVERED
        if self._is_own(header) or message_id in self._held:  # an own one that comes back is known by its name
            return Reason.HAS_IT
        if self._arriving.is_busy(message_id, now):
            return Reason.BUSY
        if offer.hops > self.limits.hops:
            return Reason.HOP_LIMIT
        if not self.limits.carry and header.recipient != self.name:
            return Reason.NO_PROXY
        if not offer.copies and not (self.has_uplink or header.recipient == self.name):
            return Reason.PROXY_COUNT
        if not self._originators(header.originator):
            return Reason.UNKNOWN_ORIGINATOR
        limits = self.limits
        return self._limit_reason(header, offer.size, offer.age_s, limits.carried_bundles, limits.carried_bytes)

    def begin_arrival(self, offer: Offer, now: float) -> None:
        """The offer is accepted: its size is set aside."""
        self._arriving.begin(offer.header.message_id, offer.size, now)

    def end_arrival(self, message_id: str) -> None:
        """The bundle has come, or will not come, from one of those that bring it."""
        self._arriving.end(message_id)

    def begin_storing(self, message_id: str) -> Reason | None:
        """All of the bundle has come, and is to be made durable; or why not: another peer was faster."""
        if message_id in self._held:
            return Reason.HAS_IT
        return None if self._arriving.begin_storing(message_id) else Reason.BUSY

    def end_storing(self, message_id: str) -> None:
        """It is durable, or could not be made so. Ends its arrival, too."""
        self._arriving.end_storing(message_id)

    def verify(self, bundle: Bundle) -> bool:
        """Whether its originator signed it. Raises SignatureError if not; False if the originator's keys are gone."""
        keys = self._originators(bundle.header.originator)
        if keys:
            bundle_format.verify(bundle, keys)
        return bool(keys)

    def add(self, bundle: Bundle, copies: int | None, now: float) -> None:
        """Holds a verified bundle that is durable. One that is held already, or delivered, changes nothing. Raises
        ConflictError if another one has the same id."""
        held = self._held.get(bundle.message_id)
        if held is not None and held.bundle.signed != bundle.signed:
            raise ConflictError(f"another bundle of {bundle.header.originator} has the id {bundle.message_id}")
        if held is None and not self._is_over(bundle.header, copies):
            record = self._record(bundle, copies, now)
            record.is_shared = not self._is_own(bundle.header)
            self._hold(bundle.message_id, record)

    def copies_taken(self, offered: int) -> int | None:
        """The budget that comes with a bundle of which so many copies were offered: no more than our own setting."""
        most = self.limits.copies or None
        taken = None if offered == UNLIMITED else offered
        return min((one for one in (taken, most) if one is not None), default=None)

    def expire(self, now: float) -> list[Held]:
        """Removes the bundles whose lifetime has passed, and returns them."""
        over = [held for held in self._held.values() if not held.remaining_s(now)]
        for held in over:
            self._remove(held.message_id)
        return over

    def candidates(self, now: float) -> list[Candidate]:
        """All bundles that may be offered: alive, with hops left."""
        return [
            Candidate(held.message_id, held.header, held.free, remaining_s)
            for held in self._held.values()
            if held.hops < self.limits.hops and (remaining_s := held.remaining_s(now))
        ]

    # -- budgets -------------------------------------------------------------------------------------------------------

    def reserve(self, message_id: str, copies: int) -> None:
        """Copies are offered to a peer."""
        self._held[message_id].reserved += copies

    def release(self, message_id: str, copies: int) -> None:
        """They were not taken."""
        if (held := self._held.get(message_id)) is not None:
            held.reserved -= copies

    def given(self, message_id: str, copies: int) -> None:
        """They are stored at the peer."""
        if (held := self._held.get(message_id)) is not None:
            held.reserved -= copies
            held.is_shared = True
            if held.copies is not None and held.copies != FOR_RECIPIENT:
                held.copies = max(0, held.copies - copies)
            for one in self._watchers:
                one.given(held)

    # -- certificates --------------------------------------------------------------------------------------------------

    @property
    def revocations(self) -> int:
        """The number of the revocation list that originators and signers go by."""
        return 0 if self.certificates is None else self.certificates.revocations.number

    def take_certificate(self, der: bytes, source: Peer) -> Certificate | None:
        """Keeps a certificate of a peer; None if it brings nothing new. Raises CertificateError."""
        return None if self.certificates is None else self.certificates.add(der, source)

    def take_revocations(self, encoded: bytes) -> bool:
        """Goes by a revocation list from now on; False if it is not newer. Raises FormatError, SignatureError."""
        return self.certificates is not None and self.certificates.take_revocations(encoded)

    # -- receipts and peers --------------------------------------------------------------------------------------------

    def take_receipt(self, receipt: Receipt, source: Peer = OURS) -> bool:
        """Drops the bundle and keeps the receipt; False if it brings nothing new. Raises SignatureError."""
        if not self._is_news(receipt):
            return False
        return self._take(receipt_format.verify(receipt, self._signers), source)

    def take_verified(self, receipt: VerifiedReceipt) -> bool:
        """As :meth:`take_receipt`, for one whose signature the uplink has checked."""
        return self._is_news(receipt) and self._take(receipt, OURS)

    def hello(self, now: float) -> Hello:
        """What this agent says of itself."""
        predictability, limits = self.encounters.predictability(now), self.limits
        return Hello(
            *(self.name, self.incarnation, self.has_uplink, predictability),
            *(limits.frame_bytes, limits.bundle_bytes, self.revocations),
        )

    def is_delivered(self, header: Header) -> bool:
        """Whether there is a receipt by one who may sign it for this message."""
        known = self.receipts.record(header.message_id)
        return known is not None and known.settles(header)

    def _is_own(self, header: Header) -> bool:
        return (header.originator, header.incarnation) == (self.name, self.incarnation)

    def _is_over(self, header: Header, copies: int | None) -> bool:
        """Whether a receipt ends the message. That the platform has it ends neither what the platform gave us for the
        recipient, nor what is for us and has not arrived."""
        receipt = self.receipts.record(header.message_id)
        if receipt is None or not receipt.settles(header):
            return False
        return receipt.role is not Role.GATEWAY or not (copies == FOR_RECIPIENT or header.recipient == self.name)

    def _is_news(self, receipt: Receipt) -> bool:
        """One of a recipient counts for little while the bundle, and so its destination, is unknown: any other may take
        its place. Our own we pass on in any case: whoever has brought the message from the platform needs it."""
        known = self.receipts.record(receipt.message_id)
        if known is None or receipt.message_id in self._held:
            return True
        if known.role is Role.GATEWAY and receipt.signer == self.name:
            return True
        return known.role is Role.RECIPIENT and receipt.role is not Role.RECIPIENT

    def _take(self, receipt: VerifiedReceipt, source: Peer) -> bool:
        held = self._held.get(receipt.message_id)
        if held is not None and not receipt.settles(held.header):
            raise SignatureError(f"{receipt.signer} is not the recipient of {receipt.message_id}")
        if held is None or held.copies != FOR_RECIPIENT or receipt.role is not Role.GATEWAY:
            self._remove(receipt.message_id)
        return self.receipts.add(receipt, source)

    def _new_table(self) -> HeldById:
        """Where what is held is kept, in the order in which it came."""
        return {}

    def _record(self, bundle: Bundle, copies: int | None, now: float) -> Held:
        """What is kept of a bundle."""
        return InMemory(bundle, copies, now)

    def _hold(self, message_id: str, held: Held) -> None:
        self._held[message_id] = held
        self._bytes += held.size
        for one in self._watchers:
            one.added(held)

    def _remove(self, message_id: str) -> None:
        held = self._held.pop(message_id, None)
        if held is not None:
            self._bytes -= held.size
            for one in self._watchers:
                one.removed(held)

    def _own_limit_reason(self, header: Header, size: int, age_s: int) -> Reason | None:
        """Why a message of this agent does not fit."""
        return self._limit_reason(header, size, age_s, self.limits.stored_bundles, self.limits.stored_bytes)

    def _limit_reason(self, header: Header, size: int, age_s: int, bundles: int, stored_bytes: int) -> Reason | None:
        limits = self.limits
        if header.lifetime_s > limits.lifetime_s or age_s >= header.lifetime_s:
            return Reason.TOO_OLD
        if size > limits.bundle_bytes:
            return Reason.TOO_LARGE
        is_full = len(self._held) + len(self._arriving) >= bundles
        if is_full or self._bytes + self._arriving.bytes + size > stored_bytes:
            return Reason.FULL
        return None
