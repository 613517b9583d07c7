"""A message of the client library as a record on `ingress`, as a gateway would write it (schemas.envelope, R8); pure.

All of one client's messages go to one partition, so their order is kept. The message id is derived from the client
and the message's incarnation and sequence: a record that is written twice has the same id.
"""

from typing import NamedTuple

from edge.client.store import StoredMessage
from mqtt.codes import PacketType
from mqtt.errors import LocalProtocolError
from mqtt.packets import Publish
from mqtt.properties import NO_PROPERTIES, forwarded_section
from schemas.envelope import Headers, Meta, ingress_headers
from schemas.identity import message_id_of, partition_of
from schemas.reserved_topics import is_reserved


class IngressRecord(NamedTuple):
    """`partition`, `key`, `value` and `headers` of a record."""

    partition: int
    key: bytes
    value: bytes
    headers: Headers


def check_record(packet: Publish) -> None:
    """Raises LocalProtocolError if a program must not write the message to Kafka by itself."""
    if packet.retain:
        raise LocalProtocolError("over Kafka no message can be retained: gateways keep what is; use mqtt or https")
    if is_reserved(packet.topic):
        raise LocalProtocolError(f"only the platform publishes to {packet.topic!r:.100}")


def ingress_record(
    message: StoredMessage, client_id: str, partitions: int, now_s: float, remaining_s: float | None
) -> IngressRecord:
    """`now_s` is the wall clock's, since the epoch; `remaining_s` what is left of the lifetime that the message shall
    have at its receivers, None for no end."""
    properties = NO_PROPERTIES
    if message.properties:
        properties = forwarded_section(message.properties, PacketType.PUBLISH)
    expires = None if remaining_s is None else int((now_s + max(0.0, remaining_s)) * 1000)
    meta = Meta(message.qos, "", expires, int(now_s * 1e6), None)
    message_id = message_id_of(client_id, message.incarnation, message.sequence)
    headers = ingress_headers(message_id, client_id, meta, properties)
    return IngressRecord(partition_of(client_id, partitions), message.topic.encode(), message.payload, headers)
