"""What policy allows one client, checked before its own rights (Q12)."""

from collections.abc import Callable

from gateway.policy.content import ContentPolicy
from gateway.policy.findings import Findings
from gateway.policy.rate import MessageRate
from gateway.shard.rules import ClientRules, Verdict
from mqtt.codes import ReasonCode
from mqtt.packets import Publish

# 0x96 is not allowed in an answer to PUBLISH: the connection ends with it.
_ABOVE = {"refuse": Verdict(ReasonCode.QUOTA_EXCEEDED), "disconnect": Verdict(ReasonCode.MESSAGE_RATE_TOO_HIGH)}


class PolicyRules:
    """The rules of one connected client: policy's, then those of `inner`.

    Every PUBLISH counts towards the rate, also one refused for another reason. `above` is what happens beyond it; with
    `pause` all messages are accepted, and reading resumes after :meth:`wait_s`. `clock` is monotonic.
    """

    open = False

    def __init__(
        self,
        inner: ClientRules,
        client: str,
        content: ContentPolicy,
        rate: MessageRate | None,
        above: str,
        findings: Findings,
        clock: Callable[[], float],
    ) -> None:
        self.user, self.until = inner.user, inner.until
        self.blocked_filter = ReasonCode.UNSPECIFIED_ERROR
        self._inner = inner
        self._judge_inner = None if inner.open else inner.publish
        self._client = client
        self._content = content
        self._rate = rate
        self._above = _ABOVE.get(above)
        self._findings = findings
        self._clock = clock

    def publish(self, packet: Publish) -> Verdict:
        """The first refusal, or the flags of all checks."""
        if self._rate is not None:
            above = self._above_rate(self._rate, len(packet.payload))
            if above is not None:
                return above
        verdict, event = self._content.judge(packet)
        if event:
            self._note(event)
        if self._judge_inner is None or verdict.reason is not ReasonCode.SUCCESS:
            return verdict
        inner = self._judge_inner(packet)
        return Verdict(inner.reason, verdict.flags + inner.flags) if verdict.flags else inner

    def may_publish(self, topic: str) -> bool:
        return self._content.may_publish(topic) and self._inner.may_publish(topic)

    def subscribe(self, topic_filter: str) -> ReasonCode:
        """Returns `blocked_filter` for filters that nobody may subscribe to. By default it is 0x80: the other SUBACK
        codes would blame the client. HTTP would show 0x80 as a server error, so 0x87 (403) fits better there."""
        if self._content.may_subscribe(topic_filter):
            return self._inner.subscribe(topic_filter)
        self._note("policy_blocked_filter")
        return self.blocked_filter

    def wait_s(self) -> float:
        """Seconds to wait before reading more from the client; 0 or less: none."""
        return 0.0 if self._rate is None or self._above is not None else self._rate.owed_s(self._clock())

    def _above_rate(self, rate: MessageRate, n_bytes: int) -> Verdict | None:
        now = self._clock()
        if self._above is None:
            was_within = rate.owed_s(now) <= 0
            rate.count(now, n_bytes)
            if was_within and rate.owed_s(now) > 0:
                self._note("policy_message_rate_paused")
        elif not rate.admits(now, n_bytes):
            self._note("policy_message_rate")
            return self._above
        return None

    def _note(self, event: str) -> None:
        self._findings.note(event, self._client, self._clock())
