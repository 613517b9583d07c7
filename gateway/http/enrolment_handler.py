"""Enrolment and renewal over HTTP (M5): the token, or the certificate with its key's signature, is the credential.

Anybody may ask, so requests of one address are limited before anything is checked. A token is never logged, and no
answer repeats it. Refusals are logged, at most one a second.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import structlog

from bundles.errors import CertificateError, IssueRefused, TokenError
from gateway.access.enrolment import Enrolment
from gateway.http.problems import Problem, bad_request
from gateway.policy.bucket import BucketsByClient, TokenBucket
from schemas.enrolment import EnrolmentAnswer, EnrolmentRequest, RenewalRequest
from schemas.enrolment_settings import EnrolmentSettings
from schemas.undecodable import UNDECODABLE

T = TypeVar("T", EnrolmentRequest, RenewalRequest)

_LOG_INTERVAL_S: Final = 1.0
OFF: Final = "devices are not enrolled at this gateway (gateway.enrolment.enabled): ask another gateway"

log = structlog.get_logger(__name__)


class EnrolmentHandler:
    """Answers from `enrolment`; without it, every request is a 404. `now`: seconds of a clock that never goes back."""

    def __init__(self, enrolment: Enrolment | None, settings: EnrolmentSettings, now: Callable[[], float]) -> None:
        self._enrolment, self._now = enrolment, now
        per_s, burst = settings.requests_per_s, settings.requests_burst
        self._log_at, self._left_out = float("-inf"), 0
        self._buckets = BucketsByClient(lambda: TokenBucket(per_s, burst))

    def check(self, peer: str) -> None:
        """Before the body is read. Raises Problem 404 if enrolment is off, 429 if `peer`, an `address:port`, asks too
        often."""
        if self._enrolment is None:
            raise Problem(404, "enrolment_off", OFF)
        now = self._now()
        bucket = self._buckets.of(peer.rpartition(":")[0], now)
        if not bucket.has(now):
            raise Problem(429, "enrolment_rate_exceeded", "too many enrolments from this address; try again later")
        bucket.take(now)

    def enrol(self, body: bytes, peer: str) -> EnrolmentAnswer:
        """The answer to a request with a token. Raises Problem 400, 403."""
        return self._answer(self._on.enrol, _decoded(body, EnrolmentRequest), peer)

    def renew(self, body: bytes, peer: str) -> EnrolmentAnswer:
        """The answer to a request with a certificate. Raises Problem 400, 403."""
        return self._answer(self._on.renew, _decoded(body, RenewalRequest), peer)

    @property
    def _on(self) -> Enrolment:
        if self._enrolment is None:
            raise Problem(404, "enrolment_off", OFF)
        return self._enrolment

    def _answer(self, act: Callable[[T], EnrolmentAnswer], request: T, peer: str) -> EnrolmentAnswer:
        try:
            return act(request)
        except (TokenError, IssueRefused, CertificateError) as error:
            self._log_refusal(peer, str(error))
            raise _problem(error) from error

    def _log_refusal(self, peer: str, reason: str) -> None:
        now = self._now()
        if now < self._log_at:
            self._left_out += 1
            return
        log.warning("enrolment refused", peer=peer, reason=reason, others_since=self._left_out)
        self._log_at, self._left_out = now + _LOG_INTERVAL_S, 0


def _problem(error: TokenError | IssueRefused | CertificateError) -> Problem:
    if isinstance(error, CertificateError):
        return bad_request("malformed_certificate", str(error))
    return Problem(403, "malformed_token" if isinstance(error, TokenError) else "not_issued", str(error))


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise bad_request("malformed_body", f"the body is not an enrolment request: {error}") from error
