"""Conversations in a share group of a home in memory (R6)."""

from typing import Any

from gateway.shard.conversations import Conversations
from schemas.session_log import ConversationRecord, GroupRecord, SessionKey, decode
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import SHARDS, HomeHarness
from tests.unit.gateway.shard.share_harness import group_of


def of(conversation: str, **others: Any) -> dict[str, Any]:
    """Properties of a message of a conversation."""
    return {"user_property": [("conversation", conversation)], **others}


def say(sender: Client, conversation: str, *payloads: bytes, qos: int = 1, topic: str = "a/x") -> None:
    for payload in payloads:
        sender.publish(topic, payload, qos, properties=of(conversation))


def with_settings(harness: HomeHarness, **settings: float) -> HomeHarness:
    harness.environment |= {f"WAYSTATION_GATEWAY__SHARES__{key.upper()}": str(value) for key, value in settings.items()}
    return harness


def conversations_of(harness: HomeHarness) -> Conversations:
    found = group_of(harness).conversations
    assert found is not None
    return found


def logged(harness: HomeHarness) -> dict[tuple[str, str], ConversationRecord]:
    """What the session log says of all conversations, by sender and id."""
    found: dict[tuple[str, str], ConversationRecord] = {}
    for shard in range(SHARDS):
        for record in harness.broker.partitions[harness.topics.sessions, shard]:
            key = SessionKey.decode(record.key() or b"")
            parts = key.client.split("\0")
            if key.kind != "g" or len(parts) != 4:
                continue
            found.pop((parts[2], parts[3]), None)
            if record.value() is not None:
                value = decode(key.kind, record.value() or b"")
                assert isinstance(value, GroupRecord)
                assert isinstance(value.conversation, ConversationRecord)
                found[parts[2], parts[3]] = value.conversation
    return found


def holder(members: list[Client], payload: bytes) -> Client:
    """The member that has got a message."""
    [found] = [member for member in members if payload in member.payloads]
    return found


def tells(member: Client) -> list[bool]:
    """Which of the messages that a member was sent, repetitions included, told it that another one was gone."""
    return [("conversation-restarted", "true") in found.get("user_property", ()) for found in member.properties]
