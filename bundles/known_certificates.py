"""The certificates and the revocation list that an agent or gateway knows: whose key a name has, now (M5, M17).

Certificates come from enrolment, from contacts and from gateways; each is verified once, when it comes. Several of one
name are kept: a renewed certificate has the keys of the one before; one of a device that was enrolled again has others,
and what was signed with the old ones is still on its way.

They are numbered as they come, like receipts (:mod:`edge.mesh.known_receipts`), so that a peer is sent only those that
came since the last contact, and none that it has sent itself.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from bundles import revocations as revocation_format
from bundles.certificates import Authority, Certificate
from bundles.receipt import Role
from bundles.revocations import Revocations

OF_A_NAME_MAX: Final = 4
"""Certificates that are kept of one name: the newest of each key."""

Source = tuple[str, int]
"""Which peer sent a certificate: name and incarnation."""


class Numbered(NamedTuple):
    """A certificate, and the how many-th it was."""

    number: int
    certificate: Certificate
    source: Source | None


class KnownCertificates:
    """`wall_s`: the time, seconds since the epoch. At most `most` names; beyond, those heard of longest ago are
    forgotten, but never one in `kept` (our own, and those of gateways)."""

    def __init__(
        self,
        authority: Authority,
        wall_s: Callable[[], float],
        *,
        most: int = 10_000,
        kept: Iterable[str] = (),
        revocations: Revocations = revocation_format.NONE,
    ) -> None:
        self.authority, self._wall_s, self._most, self._kept = authority, wall_s, most, frozenset(kept)
        self._by_name: OrderedDict[str, list[Certificate]] = OrderedDict()  # the newest first
        self._gateways: set[str] = set()
        self._numbered: dict[bytes, Numbered] = {}  # by encoding, the latest last
        self.number = 0
        """Of the latest certificate; 0 if there was none."""
        self.revocations = revocations

    def has(self, der: bytes) -> bool:
        """Whether exactly this certificate is known; costs nothing."""
        return der in self._numbered

    def find(self, der: bytes) -> Certificate | None:
        """What exactly this certificate says, if it is known; costs nothing."""
        same = self._numbered.get(der)
        return None if same is None else same.certificate

    def remove(self, der: bytes) -> None:
        """Forgets a certificate."""
        same = self._numbered.pop(der, None)
        if same is None:
            return
        name = same.certificate.name
        left = [one for one in self._by_name[name] if one is not same.certificate]
        if left:
            self._by_name[name] = left
        else:
            del self._by_name[name]
            self._gateways.discard(name)

    def add(self, der: bytes, source: Source | None = None) -> Certificate | None:
        """Takes a certificate; None if it brings nothing new. `source`: the peer that sent it. Raises CertificateError
        if it is not the authority's."""
        if (same := self._numbered.get(der)) is not None:
            self._by_name.move_to_end(same.certificate.name)
            return None
        found = self.authority.read(der)
        known = self._by_name.setdefault(found.name, [])
        self._by_name.move_to_end(found.name)
        same_key = [one for one in known if one.key == found.key]
        if any(one.not_after_s >= found.not_after_s for one in same_key):
            return None
        if Role.GATEWAY in found.roles:
            self._gateways.add(found.name)
        newest = [found, *(one for one in known if one not in same_key)]
        newest.sort(key=lambda one: (one.not_before_s, one.der), reverse=True)  # the same order for all who know them
        self._by_name[found.name] = newest[:OF_A_NAME_MAX]
        for dropped in (*same_key, *newest[OF_A_NAME_MAX:]):
            self._numbered.pop(dropped.der, None)
        if found not in newest[:OF_A_NAME_MAX]:
            return None
        self.number += 1
        self._numbered[found.der] = Numbered(self.number, found, source)
        self._bound()
        return found

    def after(self, number: int, peer: Source | None = None) -> list[Numbered]:
        """Those that came later than `number`, in this order, whose signatures count; without what the peer itself has
        sent."""
        now_s = self._wall_s()
        later = [one for one in self._later(number) if one.source is None or one.source != peer]
        return [one for one in reversed(later) if self._counts(one.certificate, now_s)]

    def take_revocations(self, encoded: bytes) -> bool:
        """Takes a revocation list; False if it is not newer. Raises FormatError, SignatureError."""
        found = revocation_format.read(encoded, self.authority.key)
        if found.number <= self.revocations.number:
            return False
        self.revocations = found
        return True

    def is_trusted(self, certificate: Certificate) -> bool:
        """Whether a link may be opened with it now."""
        return certificate.is_valid(self._wall_s()) and not self.revocations.revokes(certificate)

    def of(self, name: str) -> tuple[Certificate, ...]:
        """The certificates of a name whose signatures count, the newest first."""
        now_s = self._wall_s()
        return tuple(one for one in self._by_name.get(name, ()) if self._counts(one, now_s))

    def numbered(self, name: str, after: int = 0, peer: Source | None = None) -> list[Numbered]:
        """The certificates of a name that :meth:`after` gives."""
        found = [self._numbered[one.der] for one in self.of(name)]
        return [one for one in found if one.number > after and (one.source is None or one.source != peer)]

    def originator_keys(self, name: str) -> tuple[Ed25519PublicKey, ...]:
        """The keys that may have signed a bundle of the name: :data:`edge.mesh.carrier.Originators`."""
        return tuple(one.key for one in self.of(name))

    def signer_keys(self, name: str, role: Role) -> tuple[Ed25519PublicKey, ...]:
        """The keys of the name that may have signed a receipt in the role: :data:`bundles.receipt.Signers`."""
        return tuple(one.key for one in self.of(name) if role in one.roles)

    def sealing_key(self, recipient: str | None) -> X25519PublicKey | None:
        """The key to seal a payload to: that of the agent, or of the platform if `recipient` is None; None if it is not
        known (yet)."""
        found = self.of(recipient) if recipient is not None else self.gateways()
        return found[0].sealing_key if found else None

    def gateways(self) -> tuple[Certificate, ...]:
        """The certificates that may sign as a gateway, the newest first."""
        found = [one for name in self._gateways for one in self.of(name) if Role.GATEWAY in one.roles]
        return tuple(sorted(found, key=lambda one: one.not_before_s, reverse=True))

    def _counts(self, certificate: Certificate, now_s: float) -> bool:
        return certificate.may_have_signed(now_s) and not self.revocations.revokes(certificate)

    def _later(self, number: int) -> Iterator[Numbered]:
        for one in reversed(self._numbered.values()):
            if one.number <= number:
                return
            yield one

    def _bound(self) -> None:
        if len(self._by_name) <= self._most:
            return
        for name in self._by_name:
            if name not in self._kept and name not in self._gateways:
                for forgotten in self._by_name.pop(name):
                    self._numbered.pop(forgotten.der, None)
                return
