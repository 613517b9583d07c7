"""The certificates and the revocation list that an agent or gateway knows: whose key a name has, now (M5, M17).

Certificates come from enrolment, from contacts and from gateways; each is verified once, when it comes. Several of one
name are kept: a renewed certificate has the keys of the one before; one of a device that was enrolled again has others,
and what was signed with the old ones is still on its way.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from bundles import revocations as revocation_format
from bundles.certificates import Authority, Certificate
from bundles.receipt import Role
from bundles.revocations import Revocations

OF_A_NAME_MAX: Final = 4
"""Certificates that are kept of one name: the newest of each key."""


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
        self.revocations = revocations

    def add(self, der: bytes) -> Certificate | None:
        """Takes a certificate; None if it brings nothing new. Raises CertificateError if it is not the authority's."""
        found = self.authority.read(der)
        known = self._by_name.setdefault(found.name, [])
        self._by_name.move_to_end(found.name)
        same_key = [one for one in known if one.key == found.key]
        if any(one.not_after_s >= found.not_after_s for one in same_key):
            return None
        if Role.GATEWAY in found.roles:
            self._gateways.add(found.name)
        newest = [found, *(one for one in known if one not in same_key)]
        newest.sort(key=lambda one: one.not_before_s, reverse=True)
        self._by_name[found.name] = newest[:OF_A_NAME_MAX]
        self._bound()
        return found if found in newest[:OF_A_NAME_MAX] else None

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
        return tuple(
            one
            for one in self._by_name.get(name, ())
            if one.may_have_signed(now_s) and not self.revocations.revokes(one)
        )

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

    def _bound(self) -> None:
        if len(self._by_name) <= self._most:
            return
        for name in self._by_name:
            if name not in self._kept and name not in self._gateways:
                del self._by_name[name]
                return
