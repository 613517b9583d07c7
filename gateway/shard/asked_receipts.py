"""Receipts that senders ask for: what a PUBLISH asks, and how the platform is told (Q13; :mod:`schemas.receipts`).

The gateway that takes the message writes an `asked` event to `progress`, in the message's partition there. The
completion query of the ledger has all other events of the message there too, and sends the receipt. The flag in the
envelope makes homes and routers mark those events.
"""

import base64
from typing import NamedTuple

from mqtt.codes import PacketType
from mqtt.packets import Properties, Publish
from mqtt.properties import encode_properties
from schemas.events import ProgressEvent, encode
from schemas.receipts import KINDS, MOST_CORRELATION_BYTES, RECEIPT_PROPERTY, ReceiptKind, ReceiptRequest


class AskedReceipt(NamedTuple):
    """What a sender wants to hear, and the `correlation_data` by which it knows the message, empty for none."""

    kind: ReceiptKind
    correlation_data: bytes

    @property
    def fits(self) -> bool:
        """Whether the correlation data is short enough to be kept."""
        return len(self.correlation_data) <= MOST_CORRELATION_BYTES

    def event(self, message_id: str, sender: str, partition: int) -> bytes:
        """The event on `progress`; `partition` is that of the message on `ingress`."""
        properties: Properties = {
            "payload_format_indicator": 1,
            "content_type": "application/json",
            "user_property": [(RECEIPT_PROPERTY, self.kind)],
        }
        if self.correlation_data:
            properties["correlation_data"] = self.correlation_data
        section = base64.b64encode(encode_properties(properties, PacketType.PUBLISH)).decode()
        request = ReceiptRequest(kind=self.kind, to=sender, properties=section)
        return encode(
            ProgressEvent(
                kind="asked", id=message_id, partition=partition, offset=-1, appended_ms=0, is_awaited=True,
                receipt=request,
            )
        )  # fmt: skip


def receipt_of(packet: Publish) -> AskedReceipt | None:
    """The receipt that a PUBLISH asks for; the first that is known counts."""
    properties = packet.properties
    if not properties or "user_property" not in properties:
        return None
    for name, value in properties["user_property"]:
        if name == RECEIPT_PROPERTY and value in KINDS:
            return AskedReceipt(value, properties.get("correlation_data", b""))
    return None
