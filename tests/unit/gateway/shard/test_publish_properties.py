"""What user properties of a PUBLISH ask for, one beside the other: receipts (Q13) and conversations (R6)."""

import msgspec
import pytest

from gateway.shard.asked_receipts import AskedReceipt
from gateway.shard.publish_properties import Wanted, wanted
from mqtt.codes import ReasonCode
from mqtt.packets import Properties
from schemas.receipts import MOST_CORRELATION_BYTES
from schemas.share_settings import SharesSettings

RECEIPT, CONVERSATION = ("receipt", "delivered"), ("conversation", "42")
TALKING = SharesSettings(
    conversations=10, conversation_id_bytes=8, conversation_s=60, conversation_offline_s=30, conversation_waiting=10
)
SILENT = msgspec.structs.replace(TALKING, conversations=0)


def of(
    properties: Properties, topic: str = "shop", shares: SharesSettings = TALKING, may_publish: bool = True
) -> Wanted:
    return wanted(topic, properties, None, shares, "van", lambda _: may_publish)


def test_a_message_without_them_wants_nothing() -> None:
    assert of({}) == Wanted()
    assert of({"user_property": [("colour", "red")], "response_topic": "answers"}) == Wanted()


def test_a_receipt_and_a_conversation_at_once() -> None:
    found = of({"user_property": [CONVERSATION, RECEIPT], "correlation_data": b"7", "response_topic": "answers"})
    assert found == Wanted(flags="qcn", receipt=AskedReceipt("delivered", b"7"))


@pytest.mark.parametrize(
    ("response_topic", "may_publish", "flags"),
    [
        (None, True, "c"),
        ("answers", True, "cn"),
        ("answers", False, "c"),
        ("@van", False, "cn"),
        ("@another", False, "c"),
        ("$presence/van", True, "c"),
    ],
)
def test_the_platform_answers_where_the_sender_may_publish(
    response_topic: str | None, may_publish: bool, flags: str
) -> None:
    properties: Properties = {"user_property": [CONVERSATION]}
    if response_topic is not None:
        properties["response_topic"] = response_topic
    assert of(properties, may_publish=may_publish).flags == flags


def test_conversations_mean_nothing_to_an_inbox_or_when_turned_off() -> None:
    bad: Properties = {"user_property": [("conversation", "")]}
    assert of(bad).reason == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert of(bad, topic="@van") == Wanted()
    assert of(bad, shares=SILENT) == Wanted()


@pytest.mark.parametrize("mark", [("waystation-receipt", "delivered"), ("conversation-receiver", "gone")])
def test_only_the_platform_says_what_only_it_knows(mark: tuple[str, str]) -> None:
    for shares in (TALKING, SILENT):
        forged = of({"user_property": [CONVERSATION, mark]}, shares=shares)
        assert (forged.reason, forged.counts_as) == (ReasonCode.NOT_AUTHORIZED, "refused_by_rule")


def test_what_is_refused_says_what_counts() -> None:
    long = of({"user_property": [RECEIPT], "correlation_data": bytes(MOST_CORRELATION_BYTES + 1)})
    assert (long.reason, long.counts_as) == (ReasonCode.QUOTA_EXCEEDED, "refused_receipt_too_large")
    several = of({"user_property": [CONVERSATION, CONVERSATION]})
    assert (several.reason, several.counts_as) == (ReasonCode.PAYLOAD_FORMAT_INVALID, "refused_conversation")


def test_the_platform_s_own_receipt_takes_the_place_of_a_sender_s() -> None:
    own = AskedReceipt("failed", b"id", "another")
    assert wanted("shop", {"user_property": [RECEIPT]}, own, TALKING, "van", lambda _: True).receipt == own
