"""Access rules for the home: one answer per topic, cached until the rules change (R11, Q12)."""

from collections import Counter
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from gateway.access.acl import Acl, Permission
from gateway.shard.rules import ALLOWED, FOR_EVER, Verdict
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from mqtt.topics import SHARED_PREFIX, split_shared

REFUSED: Final = Verdict(ReasonCode.NOT_AUTHORIZED)

_TOPICS_REMEMBERED = 256
"""Answers cached for one client."""


class AclRules:
    """What one client may do under the current rules (:class:`gateway.shard.rules.ClientRules`)."""

    open = False

    def __init__(self, authorizer: "Authorizer", user: str, client: str, until: float = FOR_EVER) -> None:
        self.user = user
        self.until = until
        self._client = client
        self._authorizer = authorizer
        self._publishing: Permission | None = None
        self._subscribing: Permission | None = None
        self._verdicts: dict[str, Verdict] = {}

    def publish(self, packet: Publish) -> Verdict:
        verdict = self._verdicts.get(packet.topic)
        if verdict is None:
            verdict = self._judge(packet.topic)
        if verdict is REFUSED:
            self._authorizer.counts["publish_not_authorized"] += 1
        return verdict

    def may_publish(self, topic: str) -> bool:
        return (self._verdicts.get(topic) or self._judge(topic)) is ALLOWED

    def subscribe(self, topic_filter: str) -> ReasonCode:
        if topic_filter.startswith(SHARED_PREFIX):
            shared = split_shared(topic_filter)
            topic_filter = shared[1] if shared is not None else "#"  # invalid: treated as a request for everything
        if self._subscribing is None:
            self._subscribing = self._authorizer.acl.subscribing(self.user, self._client)
        return ReasonCode.SUCCESS if self._subscribing.allows(topic_filter) else ReasonCode.NOT_AUTHORIZED

    def forget(self) -> None:
        """Clears the cache: the rules have changed."""
        self._publishing = self._subscribing = None
        self._verdicts.clear()

    def _judge(self, topic: str) -> Verdict:
        if self._publishing is None:
            self._publishing = self._authorizer.acl.publishing(self.user, self._client)
        verdict = ALLOWED if self._publishing.allows(topic) else REFUSED
        if len(self._verdicts) >= _TOPICS_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[topic] = verdict
        return verdict


class Authorizer:
    """The authorizer: the current rules and the clients they apply to. `changed` is called after each change."""

    def __init__(self, acl: Acl, counts: Counter[str]) -> None:
        self.acl = acl
        self.counts = counts
        self.changed: Callable[[], None] = lambda: None
        self._given: WeakSet[AclRules] = WeakSet()

    def rules(self, user: str, client: str, until: float) -> AclRules:
        """The rules of a client, updated as long as the caller keeps them."""
        rules = AclRules(self, user, client, until)
        self._given.add(rules)
        return rules

    def replace(self, acl: Acl) -> None:
        """Installs new rules, also for connected clients."""
        self.acl = acl
        for rules in self._given:
            rules.forget()
        self.changed()
