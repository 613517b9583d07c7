"""Policy at the door: how many may come in a second, and what those who come in may do (Q12)."""

from collections import Counter
from collections.abc import Callable

from gateway.home.rules import ClientRules
from gateway.host.gate import Credentials, Gate, NotAdmitted
from gateway.policy.bucket import BucketsByClient, TokenBucket
from gateway.policy.content import ContentPolicy
from gateway.policy.rate import MessageRate
from gateway.policy.refusals import Refusals
from gateway.policy.rules import PolicyRules
from mqtt.codes import ReasonCode
from schemas.policy_settings import PolicySettings


class PolicyGate:
    """Lets in whom `inner` lets in, no faster than configured, with `inner`'s rules and policy's before them.

    A connection takes its tokens when it is admitted: who cannot show who it is takes none from those who can. Whether
    there are any is asked before as well, so that a storm costs no password's hash. A request over HTTP is no
    connection; nor is there one to pause, so what is above the rate is refused. `clock` gives seconds and never goes
    back.
    """

    def __init__(self, inner: Gate, settings: PolicySettings, counts: Counter[str], clock: Callable[[], float]) -> None:
        self._inner = inner
        self._clock = clock
        self._refusals = Refusals(counts)
        self._content = ContentPolicy(settings)
        rate, connections = settings.message_rate, settings.connection_rate
        self._above = rate.above
        self._rates = BucketsByClient(lambda: MessageRate(rate)) if rate.messages_per_s or rate.bytes_per_s else None
        self._all = TokenBucket(connections.per_s, connections.burst)
        self._connects = BucketsByClient(lambda: TokenBucket(connections.client_per_s, connections.client_burst))

    async def admit(self, credentials: Credentials) -> ClientRules:
        """The rules of the client; raises NotAdmitted, 0x9F if connections come too fast."""
        client, is_request = credentials.client, credentials.bearer == "http"
        if is_request:
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
        checked = PolicyRules(rules, client, self._content, rate, above, self._refusals, self._clock)
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
            self._refuse("policy_connection_rate", client, now, "too many connections a second")
        if not connects.has(now):
            self._refuse("policy_client_connection_rate", client, now, "the client connects too often")
        return now, connects

    def _refuse(self, event: str, client: str, now: float, detail: str) -> None:
        self._refusals.note(event, client, now)
        raise NotAdmitted(ReasonCode.CONNECTION_RATE_EXCEEDED, detail)
