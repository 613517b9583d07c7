"""Limits on a message from any client: destination, size, content type (Q12). Pure."""

from typing import Final, NamedTuple

from gateway.shard.rules import ALLOWED, Verdict
from gateway.shard.trie import SubscriptionTrie
from mqtt.codes import ReasonCode
from mqtt.filters import covers, levels_of
from mqtt.packets import Publish
from mqtt.topics import split_shared
from schemas.envelope import OVERSIZED_FLAG
from schemas.policy_settings import AttachmentSettings, PolicySettings


class Finding(NamedTuple):
    """`event` is the name of its counter, "" if there is nothing to count."""

    verdict: Verdict
    event: str


FINE: Final = Finding(ALLOWED, "")
# 0x90, not 0x87: the name is well formed but not accepted, and no other user would be allowed (MQTT 5.0, 3.4.2.1).
BLOCKED_TOPIC: Final = Finding(Verdict(ReasonCode.TOPIC_NAME_INVALID), "policy_blocked_topic")
_LARGE: Final = Verdict(ReasonCode.PACKET_TOO_LARGE)  # for good, unlike QUOTA_EXCEEDED; as 0x97 to MQTT clients
LARGE_MESSAGE: Final = Finding(_LARGE, "policy_message_bytes")
LARGE_FOR_TOPIC: Final = Finding(_LARGE, "policy_topic_bytes")
LARGE_ATTACHMENT: Final = Finding(_LARGE, "policy_attachment_bytes")
FLAGGED_ATTACHMENT: Final = Finding(Verdict(ReasonCode.SUCCESS, OVERSIZED_FLAG), "policy_attachment_flagged")


class ContentPolicy:
    """The configured limits and blocks; every one that matches a message applies."""

    def __init__(self, settings: PolicySettings) -> None:
        self._message_bytes = settings.message_bytes
        self._topic_bytes = _filters({limit.filter: limit.bytes for limit in settings.topic_bytes})
        self._blocked = _filters(dict.fromkeys(settings.blocked_publish, 0))
        self._attachments = _Attachments(settings.attachments) if settings.attachments.types else None
        self._unsubscribable = [levels_of(topic_filter) for topic_filter in settings.blocked_subscribe]

    @property
    def is_open(self) -> bool:
        """Whether nothing is configured."""
        asks = (self._message_bytes, self._topic_bytes, self._blocked, self._attachments, self._unsubscribable)
        return not any(asks)

    def judge(self, packet: Publish) -> Finding:
        """Checks a message whose topic alias is resolved."""
        topic, n_bytes = packet.topic, len(packet.payload)
        if self._blocked is not None and self._blocked.match(topic):
            return BLOCKED_TOPIC
        if self._message_bytes and n_bytes > self._message_bytes:
            return LARGE_MESSAGE
        if self._topic_bytes is not None and n_bytes > min(self._topic_bytes.match(topic), default=n_bytes):
            return LARGE_FOR_TOPIC
        if self._attachments is not None and packet.properties:
            return self._attachments.judge(packet.properties.get("content_type"), n_bytes)
        return FINE

    def may_publish(self, topic: str) -> bool:
        """False if the topic is blocked."""
        return self._blocked is None or not self._blocked.match(topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """False if a blocked filter covers everything that `topic_filter` (with `$share/…/` if shared) matches."""
        shared = split_shared(topic_filter)
        wanted = topic_filter if shared is None else shared[1]
        levels = levels_of(wanted)
        return not any(covers(blocked, levels) for blocked in self._unsubscribable)


class _Attachments:
    """The limit for configured content types: `type/subtype`, `type/*` or `*/*`, case-insensitive, without parameters
    (RFC 9110, 8.3.1 and 12.5.1)."""

    def __init__(self, settings: AttachmentSettings) -> None:
        self._types = frozenset(name.lower() for name in settings.types)
        self._bytes = settings.bytes
        self._oversized = FLAGGED_ATTACHMENT if settings.above == "flag" else LARGE_ATTACHMENT

    def judge(self, content_type: str | None, n_bytes: int) -> Finding:
        if n_bytes <= self._bytes or not content_type:
            return FINE
        name = content_type.partition(";")[0].strip().lower()
        main, slash, _ = name.partition("/")
        return FINE if self._types.isdisjoint((name, f"{main}{slash}*", "*/*")) else self._oversized


def _filters(values: dict[str, int]) -> SubscriptionTrie[int] | None:
    """A trie of values to look up by topic; None if there are none."""
    if not values:
        return None
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for topic_filter, value in values.items():
        trie.add(topic_filter, "", value)
    return trie
