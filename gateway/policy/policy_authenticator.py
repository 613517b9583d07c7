"""Policy at connection time: how many clients may connect per second, and what admitted clients may do (Q12)."""

from collections import Counter
from collections.abc import Callable

from gateway.host.authenticator import MESH_BEARER, Authenticator, Credentials, NotAdmitted
from gateway.policy.bucket import BucketsByClient, TokenBucket
from gateway.policy.content import ContentPolicy
from gateway.policy.findings import Findings
from gateway.policy.policy_rules import PolicyRules
from gateway.policy.rate import MessageRate
from gateway.shard.rules import ClientRules
from mqtt.codes import ReasonCode
from schemas.policy_settings import PolicySettings


class PolicyAuthenticator:
    """Admits clients that `inner` admits, no faster than configured; checks policy before `inner`'s rules.

    A connection takes its tokens when it is admitted, so that clients that fail authentication take none from others.
    Tokens are also checked before authentication, so that a connection storm costs no password hashes. An HTTP request
    does not count as a connection, nor does a bundle. They have none to pause either, so messages above the rate are
    refused. A connection that began at another gateway has been counted there. `clock` gives monotonic seconds.
    """

    def __init__(
        self, inner: Authenticator, settings: PolicySettings, counts: Counter[str], clock: Callable[[], float]
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._findings = Findings(counts)
        self._content = ContentPolicy(settings)
        rate, connections = settings.message_rate, settings.connection_rate
        self._above = rate.above
        self._rates = BucketsByClient(lambda: MessageRate(rate)) if rate.messages_per_s or rate.bytes_per_s else None
        self._all = TokenBucket(connections.per_s, connections.burst)
        self._connects = BucketsByClient(lambda: TokenBucket(connections.client_per_s, connections.client_burst))

    async def admit(self, credentials: Credentials) -> ClientRules:
        """The rules of the client; raises NotAdmitted, with 0x9F if connections arrive too fast."""
        client, is_request = credentials.client, credentials.bearer in ("http", MESH_BEARER)
        if is_request or credentials.proven is not None:
            rules = await self._inner.admit(credentials)
        else:
            self._check_rate(client)
            rules = await self._inner.admit(credentials)
            now, connects = self._check_rate(client)
            self._all.take(now)
            connects.take(now)
        if self._content.is_open and self._rates is None:
            return rules
        rate = None if self._rates is None else self._rates.of(client, self._clock())
        above = "refuse" if is_request and self._above == "pause" else self._above
        checked = PolicyRules(rules, client, self._content, rate, above, self._findings, self._clock)
        if is_request:
            checked.blocked_filter = ReasonCode.NOT_AUTHORIZED
        if self._rates is not None:
            self._rates.hold(client, checked)
        return checked

    def _check_rate(self, client: str) -> tuple[float, TokenBucket]:
        """The time, and the bucket of the client's connections, which has a token."""
        now = self._clock()
        connects = self._connects.of(client, now)
        if not self._all.has(now):
            self._refuse("policy_connection_rate", client, now, "too many connections per second")
        if not connects.has(now):
            self._refuse("policy_client_connection_rate", client, now, "the client connects too often")
        return now, connects

    def _refuse(self, event: str, client: str, now: float, detail: str) -> None:
        self._findings.note(event, client, now)
        raise NotAdmitted(ReasonCode.CONNECTION_RATE_EXCEEDED, detail)
