"""What the user properties of a PUBLISH ask of the platform: a receipt (Q13), a conversation (R6). Pure."""

from collections.abc import Callable
from typing import NamedTuple

from gateway.shard.asked_receipts import AskedReceipt, receipt_of
from gateway.shard.conversation_properties import conversation_in
from gateway.shard.platform_marks import is_forged
from mqtt.codes import ReasonCode
from mqtt.packets import Properties
from schemas.envelope import ANSWERABLE_FLAG, CONVERSATION_FLAG, RECEIPT_FLAG
from schemas.identity import INBOX_MARK, inbox_of
from schemas.reserved_topics import is_reserved
from schemas.share_settings import SharesSettings


class Wanted(NamedTuple):
    """`flags` are for the message's envelope. With a `reason` the message is refused, and counts as `counts_as`."""

    flags: str = ""
    receipt: AskedReceipt | None = None
    reason: ReasonCode = ReasonCode.SUCCESS
    counts_as: str = ""


def wanted(
    topic: str,
    properties: Properties,
    receipt: AskedReceipt | None,
    shares: SharesSettings,
    sender: str,
    may_publish: Callable[[str], bool],
) -> Wanted:
    """What a message of `sender` to `topic` wants; `receipt` in the place of one that its properties ask for.
    `may_publish`: whether its sender may publish to a topic; then the platform may answer it there."""
    if is_forged(properties):
        return Wanted(reason=ReasonCode.NOT_AUTHORIZED, counts_as="refused_by_rule")
    receipt, flags = receipt or receipt_of(properties), ""
    if receipt is not None:
        flags += RECEIPT_FLAG
        if not receipt.fits:
            return Wanted(reason=ReasonCode.QUOTA_EXCEEDED, counts_as="refused_receipt_too_large")
    if shares.conversations and not topic.startswith(INBOX_MARK):  # an inbox has no share group
        try:
            if conversation_in(properties, shares.conversation_id_bytes) is not None:
                flags += CONVERSATION_FLAG
                to = properties.get("response_topic")
                if to and (to == inbox_of(sender) or (not is_reserved(to) and may_publish(to))):
                    flags += ANSWERABLE_FLAG
        except ValueError:
            return Wanted(reason=ReasonCode.PAYLOAD_FORMAT_INVALID, counts_as="refused_conversation")
    return Wanted(flags, receipt)
