"""Packets in, bytes out, for MQTT 5.0 and 3.1.1; and fast encoders for the packets of the hot path.

On 3.1.1, everything that this version lacks is left out: properties, reason codes of acknowledgements, subscription
options.
LocalProtocolError: the value cannot be encoded.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from mqtt import codes
from mqtt.codes import ALLOWED_REASONS, RETURN_CODES, PacketType, ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from mqtt.properties import WILL, encode_properties
from mqtt.wire import write_binary, write_packet_id, write_string, write_uint, write_varint

_pack_ack = struct.Struct(">BBH").pack
_pack_u16 = struct.Struct(">H").pack
_pack_short_header = struct.Struct(">BBH").pack  # remaining length below 128
_pack_header = struct.Struct(">BBBH").pack  # remaining length below 16,384

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"


def encode_publish(
    topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int, properties: bytes | None
) -> bytes:
    """PUBLISH on the hot path. Checks only that lengths and the packet id fit (struct.error).

    `topic` is the UTF-8 of a valid topic name; `packet_id` is ignored at QoS 0. `properties` is the whole section as
    :func:`mqtt.properties.encode_properties` makes it: None on 3.1.1, at least its NO_PROPERTIES on 5.0.
    """
    head = 0x30 | dup << 3 | qos << 1 | retain
    tail = _pack_u16(packet_id) if qos else b""
    if properties is not None:
        tail += properties
    topic_length = len(topic)
    length = 2 + topic_length + len(tail) + len(payload)
    if length < 128:
        return b"".join((_pack_short_header(head, length, topic_length), topic, tail, payload))
    if length < 16_384:
        header = _pack_header(head, length & 127 | 128, length >> 7, topic_length)
        return b"".join((header, topic, tail, payload))
    return b"".join((bytes((head,)), write_varint(length), _pack_u16(topic_length), topic, tail, payload))


def encode_puback(packet_id: int) -> bytes:
    """PUBACK with success: the same four bytes in both versions (3.4.2.1)."""
    return _pack_ack(0x40, 2, packet_id)


def encode_pubrec(packet_id: int) -> bytes:
    """PUBREC with success, both versions."""
    return _pack_ack(0x50, 2, packet_id)


def encode_pubrel(packet_id: int) -> bytes:
    """PUBREL with success, both versions."""
    return _pack_ack(0x62, 2, packet_id)


def encode_pubcomp(packet_id: int) -> bytes:
    """PUBCOMP with success, both versions."""
    return _pack_ack(0x70, 2, packet_id)


def encode(packet: Packet, version: int) -> bytes:
    """Any packet, in version 4 (3.1.1) or 5."""
    head, write = _ENCODERS[type(packet)]
    body: bytes = write(packet, version == codes.VERSION_5)
    if type(packet) is Publish:
        head |= packet.dup << 3 | packet.qos << 1 | packet.retain
    return bytes((head,)) + write_varint(len(body)) + body


def _section(properties: Properties | None, place: int, is_v5: bool) -> bytes:
    return encode_properties(properties, place) if is_v5 else b""


def _reason(kind: PacketType, reason: int) -> bytes:
    if reason not in ALLOWED_REASONS[kind]:
        raise LocalProtocolError(f"{kind.name} cannot carry the reason code 0x{reason:02X}")
    return bytes((reason,))


def _connect(packet: Connect, is_v5: bool) -> bytes:
    will = packet.will
    if packet.version != (codes.VERSION_5 if is_v5 else codes.VERSION_3_1_1):
        raise LocalProtocolError(f"CONNECT has version {packet.version}, but is encoded for another")
    if packet.password is not None and packet.username is None and not is_v5:
        raise LocalProtocolError("MQTT 3.1.1 has no password without a user name")
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    if will is not None:
        flags |= 0x04 | _qos(will.qos) << 3 | will.retain << 5
    parts = [write_string("MQTT"), bytes((packet.version, flags)), write_uint(packet.keep_alive, 2)]
    parts += (_section(packet.properties, PacketType.CONNECT, is_v5), write_string(packet.client_id))
    if will is not None:
        parts += (_section(will.properties, WILL, is_v5), write_string(will.topic), write_binary(will.payload))
    if packet.username is not None:
        parts.append(write_string(packet.username))
    if packet.password is not None:
        parts.append(write_binary(packet.password))
    return b"".join(parts)


def _connack(packet: Connack, is_v5: bool) -> bytes:
    if is_v5:
        reason = _reason(PacketType.CONNACK, packet.reason_code)
        return bytes((packet.session_present,)) + reason + encode_properties(packet.properties, PacketType.CONNACK)
    code = packet.reason_code
    return_code = RETURN_CODES.get(code) if isinstance(code, ReasonCode) else code
    if return_code is None:
        raise LocalProtocolError(f"MQTT 3.1.1 has no return code for {code.name}")
    return bytes((packet.session_present, return_code))


def _publish(packet: Publish, is_v5: bool) -> bytes:
    if packet.dup and not packet.qos:
        raise LocalProtocolError("DUP is allowed at QoS 1 and 2 only")
    packet_id = write_packet_id(packet.packet_id) if _qos(packet.qos) else b""
    section = _section(packet.properties, PacketType.PUBLISH, is_v5)
    return b"".join((write_string(packet.topic), packet_id, section, packet.payload))


def _qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise LocalProtocolError(f"QoS {qos} does not exist: use 0, 1 or 2")
    return qos


def _ack(kind: PacketType) -> Callable[[Puback | Pubrec | Pubrel | Pubcomp, bool], bytes]:
    def write(packet: Puback | Pubrec | Pubrel | Pubcomp, is_v5: bool) -> bytes:
        packet_id = write_packet_id(packet.packet_id)
        if not is_v5 or (not packet.reason_code and not packet.properties):
            return packet_id
        reason = _reason(kind, packet.reason_code)
        return packet_id + reason + (encode_properties(packet.properties, kind) if packet.properties else b"")

    return write


def _options(subscription: Subscription, is_v5: bool) -> bytes:
    options = _qos(subscription.qos)
    if is_v5:
        if subscription.retain_handling not in (0, 1, 2):
            raise LocalProtocolError(f"Retain Handling {subscription.retain_handling} does not exist: use 0, 1 or 2")
        options |= subscription.no_local << 2 | subscription.retain_as_published << 3
        options |= subscription.retain_handling << 4
    return bytes((options,))


def _subscribe(packet: Subscribe, is_v5: bool) -> bytes:
    parts = [write_packet_id(packet.packet_id), _section(packet.properties, PacketType.SUBSCRIBE, is_v5)]
    for subscription in packet.filters:
        parts += (write_string(subscription.filter), _options(subscription, is_v5))
    return b"".join(parts)


def _suback(packet: Suback, is_v5: bool) -> bytes:
    reasons = [_reason(PacketType.SUBACK, reason) for reason in packet.reason_codes]
    if not is_v5:
        reasons = [reason if reason < b"\x80" else b"\x80" for reason in reasons]
    section = _section(packet.properties, PacketType.SUBACK, is_v5)
    return b"".join((write_packet_id(packet.packet_id), section, *reasons))


def _unsubscribe(packet: Unsubscribe, is_v5: bool) -> bytes:
    section = _section(packet.properties, PacketType.UNSUBSCRIBE, is_v5)
    return b"".join((write_packet_id(packet.packet_id), section, *map(write_string, packet.filters)))


def _unsuback(packet: Unsuback, is_v5: bool) -> bytes:
    packet_id = write_packet_id(packet.packet_id)
    if not is_v5:
        return packet_id
    reasons = [_reason(PacketType.UNSUBACK, reason) for reason in packet.reason_codes]
    return b"".join((packet_id, encode_properties(packet.properties, PacketType.UNSUBACK), *reasons))


def _disconnect(packet: Disconnect, is_v5: bool) -> bytes:
    if not is_v5 or (not packet.reason_code and not packet.properties):
        return b""
    reason = _reason(PacketType.DISCONNECT, packet.reason_code)
    return reason + (encode_properties(packet.properties, PacketType.DISCONNECT) if packet.properties else b"")


def _auth(packet: Auth, is_v5: bool) -> bytes:
    if not is_v5:
        raise LocalProtocolError("MQTT 3.1.1 has no AUTH")
    if not packet.reason_code and not packet.properties:
        return b""
    return _reason(PacketType.AUTH, packet.reason_code) + encode_properties(packet.properties, PacketType.AUTH)


def _nothing(packet: Packet, is_v5: bool) -> bytes:
    return b""


# First byte (the flags of PUBLISH are added later) and body of every packet.
_ENCODERS: Final[Mapping[type, tuple[int, Callable[[Any, bool], bytes]]]] = {
    Connect: (0x10, _connect),
    Connack: (0x20, _connack),
    Publish: (0x30, _publish),
    Puback: (0x40, _ack(PacketType.PUBACK)),
    Pubrec: (0x50, _ack(PacketType.PUBREC)),
    Pubrel: (0x62, _ack(PacketType.PUBREL)),
    Pubcomp: (0x70, _ack(PacketType.PUBCOMP)),
    Subscribe: (0x82, _subscribe),
    Suback: (0x90, _suback),
    Unsubscribe: (0xA2, _unsubscribe),
    Unsuback: (0xB0, _unsuback),
    Pingreq: (0xC0, _nothing),
    Pingresp: (0xD0, _nothing),
    Disconnect: (0xE0, _disconnect),
    Auth: (0xF0, _auth),
}
