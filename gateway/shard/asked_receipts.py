"""Receipts that senders ask for, and what recipients say they have read (Q13; :mod:`schemas.receipts`).

The gateway that takes a message with a receipt writes an `asked` event to `progress`, in the message's partition there.
The completion query of the ledger has all other events of the message there too, and sends the receipt. The flag in the
envelope makes homes and routers mark those events. What a recipient has read goes there as a `read` event.
"""

import base64
from typing import NamedTuple

from gateway.bus import OnDone
from gateway.shard.node import Node
from mqtt.codes import PacketType
from mqtt.packets import Properties
from mqtt.properties import encode_properties
from schemas.events import ProgressEvent, encode
from schemas.identity import partition_of
from schemas.receipts import (
    KINDS,
    MESSAGE_ID_PROPERTY,
    MOST_CORRELATION_BYTES,
    RECEIPT_MARK,
    RECEIPT_PROPERTY,
    ReceiptKind,
    ReceiptRequest,
)


class AskedReceipt(NamedTuple):
    """What a sender wants to hear, and the `correlation_data` by which it knows the message, empty for none; `to`: the
    client that gets the receipt, "" for the sender."""

    kind: ReceiptKind
    correlation_data: bytes
    to: str = ""

    @property
    def fits(self) -> bool:
        """Whether the correlation data is short enough to be kept."""
        return len(self.correlation_data) <= MOST_CORRELATION_BYTES

    def tell(self, node: Node, message_id: str, sender: str, partition: int, done: OnDone) -> None:
        """Lets the ledger know of it; `partition` is that of the message on `ingress`."""
        node.counts["receipts_asked"] += 1
        _produce(node, message_id, self._event(message_id, sender, partition), done)

    def _event(self, message_id: str, sender: str, partition: int) -> bytes:
        properties: Properties = {
            "payload_format_indicator": 1,
            "content_type": "application/json",
            "user_property": [(RECEIPT_MARK, self.kind)],
        }
        if self.correlation_data:
            properties["correlation_data"] = self.correlation_data
        section = base64.b64encode(encode_properties(properties, PacketType.PUBLISH)).decode()
        request = ReceiptRequest(kind=self.kind, to=self.to or sender, properties=section)
        return encode(
            ProgressEvent(
                kind="asked", id=message_id, partition=partition, offset=-1, appended_ms=0, is_awaited=True,
                receipt=request,
            )
        )  # fmt: skip


def with_id(properties: Properties, message_id: str) -> Properties:
    """What a recipient gets with a message that it is to read: the last user property names the message."""
    pairs = [*properties.get("user_property", ()), (MESSAGE_ID_PROPERTY, message_id)]
    return {**properties, "user_property": pairs}


def tell_read(node: Node, message_id: str, client: str, done: OnDone) -> None:
    """Lets the ledger know that the client has read the message."""
    read = ProgressEvent(
        kind="read", id=message_id, partition=-1, offset=-1, appended_ms=0, is_awaited=True, read_by=client
    )
    node.counts["messages_read"] += 1
    _produce(node, message_id, encode(read), done)


def _produce(node: Node, message_id: str, event: bytes, done: OnDone) -> None:
    partition = partition_of(message_id, node.settings.kafka.ingress_partitions)
    node.bus.produce(node.topics.progress, partition, message_id.encode(), event, None, done)


def receipt_of(properties: Properties) -> AskedReceipt | None:
    """The receipt that a PUBLISH with these properties asks for; the first that is known counts."""
    for name, value in properties.get("user_property", ()):
        if name == RECEIPT_PROPERTY and value in KINDS:
            return AskedReceipt(value, properties.get("correlation_data", b""))
    return None
