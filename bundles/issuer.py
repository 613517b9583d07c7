"""What the authority's key decides: who gets a certificate by a token, and whose is renewed (M5). Time is passed in.

A certificate is issued a little before its time (:data:`bundles.certificates.BACKDATED_S`), and a revocation ends all
certificates of a name that are from before it. So one that a device gets after its name was revoked begins with the
revocation at the earliest: otherwise it would be revoked for its first minutes.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bundles import certificate_request, enrolment_token
from bundles.certificates import BACKDATED_S, GRACE_S, LIFETIME_S, Authority, Certificate, issue, sealing_key_of
from bundles.errors import CertificateError, IssueRefused
from bundles.receipt import Role
from bundles.revocations import Revocations


class Issuer:
    """Issues certificates that live `lifetime_s`. Raises CertificateError if the key is not the authority's."""

    def __init__(self, authority: Authority, key: Ed25519PrivateKey, lifetime_s: int = LIFETIME_S) -> None:
        if key.public_key() != authority.key:
            raise CertificateError("the authority's key is not that of its certificate")
        self.authority, self._key, self._lifetime_s = authority, key, lifetime_s

    def enrol(
        self, token: str, request: bytes, sealing_key: bytes, revocations: Revocations, now_s: float
    ) -> Certificate:
        """A certificate for the name in the token. Raises TokenError or IssueRefused, which say why not;
        CertificateError for a request or key that is malformed."""
        found = enrolment_token.read(token)
        if found.authority != self.authority.key.public_bytes_raw():
            raise IssueRefused("the enrolment token is of another authority than this gateway's")
        if now_s >= found.valid_until_s:
            raise IssueRefused("the enrolment token has expired: ask for a new one, and check the clocks if it is new")
        if found.issued_s < revocations.before_s.get(found.name, 0):
            raise IssueRefused(f"{found.name} was revoked after the enrolment token was made: ask for a new one")
        if Role.GATEWAY in found.roles:
            raise IssueRefused("no enrolment token gives the role of a gateway")
        key = certificate_request.read(request)
        return self._issue(found.name, key, sealing_key, found.roles | {Role.RECIPIENT}, revocations, now_s)

    def renew(
        self, certificate: bytes, request: bytes, sealing_key: bytes, revocations: Revocations, now_s: float
    ) -> Certificate:
        """A certificate of the same name, key and roles. Raises IssueRefused, which says why not; CertificateError for
        a certificate, request or key that is malformed or not ours."""
        present = self.authority.read(certificate)
        key = certificate_request.read(request)
        if key != present.key:
            raise IssueRefused(f"the certificate request is not signed by the key of {present.name}'s certificate")
        if revocations.revokes(present):
            raise IssueRefused(f"the certificate of {present.name} is revoked: the device must be enrolled again")
        if now_s >= present.not_after_s + GRACE_S:
            when = f"more than {GRACE_S // 86_400} days ago"
            raise IssueRefused(f"the certificate of {present.name} expired {when}: the device must be enrolled again")
        return self._issue(present.name, key, sealing_key, present.roles, revocations, now_s)

    def _issue(
        self,
        name: str,
        key: Ed25519PublicKey,
        sealing_key: bytes,
        roles: frozenset[Role],
        revocations: Revocations,
        now_s: float,
    ) -> Certificate:
        sealing = sealing_key_of(sealing_key)
        from_s = revocations.before_s.get(name, 0)
        if from_s > now_s + BACKDATED_S:
            raise IssueRefused(f"{name} is revoked until a time that this gateway's clock has not reached yet")
        return issue(self.authority, self._key, name, key, sealing, roles, now_s, self._lifetime_s, not_before_s=from_s)
