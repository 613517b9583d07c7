"""What a message may be: destinations, sizes, attachments (Q12)."""

import pytest

from gateway.policy.content import (
    BLOCKED_TOPIC,
    FINE,
    FLAGGED_ATTACHMENT,
    LARGE_ATTACHMENT,
    LARGE_FOR_TOPIC,
    LARGE_MESSAGE,
    ContentPolicy,
)
from mqtt.packets import Publish
from tests.unit.gateway.policy.policies import policy


def publish(topic: str, n_bytes: int, content_type: str | None = None) -> Publish:
    properties = None if content_type is None else {"content_type": content_type}
    return Publish(topic, b"x" * n_bytes, 1, packet_id=1, properties=properties)


def test_the_shipped_policy_allows_everything() -> None:
    """Q12: nothing is asked where nothing is configured."""
    shipped = ContentPolicy(policy())
    assert shipped.is_open
    assert shipped.judge(publish("a", 1_000_000, "image/png")) is FINE
    assert shipped.may_subscribe("#")


def test_all_limits_of_size_that_concern_a_message_hold() -> None:
    """Q12: the bound itself is allowed."""
    sizes = [{"filter": "sensors/#", "bytes": 10}, {"filter": "+/huge", "bytes": 1_000}]
    content = ContentPolicy(policy(message_bytes=100, topic_bytes=sizes))
    assert not content.is_open
    assert content.judge(publish("other", 100)) is FINE
    assert content.judge(publish("other", 101)) is LARGE_MESSAGE
    assert content.judge(publish("sensors/1", 10)) is FINE
    assert content.judge(publish("sensors/1", 11)) is LARGE_FOR_TOPIC
    assert content.judge(publish("sensors/huge", 11)) is LARGE_FOR_TOPIC
    assert content.judge(publish("other/huge", 101)) is LARGE_MESSAGE


@pytest.mark.parametrize(("above", "finding"), [("refuse", LARGE_ATTACHMENT), ("flag", FLAGGED_ATTACHMENT)])
def test_attachments_have_a_limit_of_their_own(above: str, finding: object) -> None:
    """Q12: content types in any case of letters and with parameters; what is larger is refused, or flagged."""
    attachments = {"types": ["image/*", "application/octet-stream"], "bytes": 50, "above": above}
    content = ContentPolicy(policy(attachments=attachments))
    assert content.judge(publish("a", 50, "image/png")) is FINE
    for content_type in ("image/png", "IMAGE/PNG; q=1", "application/octet-stream", "image/svg+xml;charset=utf-8"):
        assert content.judge(publish("a", 51, content_type)) is finding
    for content_type in ("imagery/png", "text/plain", "image", "", None):
        assert content.judge(publish("a", 51, content_type)) is FINE
    everything = ContentPolicy(policy(attachments={**attachments, "types": ["*/*"]}))
    assert everything.judge(publish("a", 51, "text/plain")) is finding


def test_a_policy_attachment_flagged_is_still_a_message() -> None:
    """Q12: flagging allows nothing that another limit refuses."""
    attachments = {"types": ["image/*"], "bytes": 50, "above": "flag"}
    content = ContentPolicy(policy(message_bytes=100, attachments=attachments))
    assert content.judge(publish("a", 101, "image/png")) is LARGE_MESSAGE


def test_blocked_destinations() -> None:
    """Q12: nobody may publish there, whatever the message; an inbox is a destination too."""
    content = ContentPolicy(policy(blocked_publish=["secret/#", "@boss"], message_bytes=10))
    for topic in ("secret", "secret/a", "@boss"):
        assert content.judge(publish(topic, 11)) is BLOCKED_TOPIC
    assert content.judge(publish("secrets", 1)) is FINE


def test_a_subscription_is_refused_if_it_asks_for_nothing_but_what_is_blocked() -> None:
    """Q12: shared subscriptions too; a wider one is granted."""
    content = ContentPolicy(policy(blocked_subscribe=["test/nosubscribe", "secret/#"]))
    for topic_filter in ("test/nosubscribe", "secret", "secret/+", "secret/a/#", "$share/group/secret/a"):
        assert not content.may_subscribe(topic_filter)
    for topic_filter in ("test/+", "#", "test", "secrets", "$share/group/#", "$share"):
        assert content.may_subscribe(topic_filter)
