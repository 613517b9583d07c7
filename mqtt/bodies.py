"""Decoders for the body of every packet but PUBLISH (MQTT 5.0 and 3.1.1, 3.1 to 3.15).

Each decoder takes (packet type, reader over the body, whether it is MQTT 5.0) and raises RemoteProtocolError with the
reason code that the section of the packet names; :mod:`mqtt.decode` finds the packets and calls them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mqtt import codes
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.properties import WILL, decode_properties
from mqtt.topics import SHARED_PREFIX, is_topic_name, may_subscribe
from mqtt.wire import Reader, check_number, malformed, protocol_error


def check_payload_format(payload: bytes, properties: Mapping[str, object]) -> None:
    """Raises 0x99 if the payload is declared as UTF-8 and is not (3.3.2.3.2)."""
    if properties.get("payload_format_indicator") == 1:
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            detail = "the payload is declared as UTF-8 but is not UTF-8"
            raise RemoteProtocolError(ReasonCode.PAYLOAD_FORMAT_INVALID, detail) from error


def _connect(kind: int, reader: Reader, is_v5: bool) -> Connect:
    """CONNECT (3.1) from its flags on; the protocol name and level have been read."""
    flags = reader.u8()
    if flags & 0x01:
        raise malformed("the reserved flag of CONNECT is set")  # [MQTT-3.1.2-3]
    has_user, has_password, has_will = bool(flags & 0x80), bool(flags & 0x40), bool(flags & 0x04)
    if has_password and not has_user and not is_v5:
        raise malformed("CONNECT has a password without a user name")  # [MQTT-3.1.2-22] of 3.1.1
    if not has_will and flags & 0x38:
        raise malformed("CONNECT has will flags without a will")  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
    if flags & 0x18 == 0x18:
        raise malformed("the will has QoS 3")  # [MQTT-3.1.2-12]
    connect = Connect(version=codes.VERSION_5 if is_v5 else codes.VERSION_3_1_1, clean_start=bool(flags & 0x02))
    connect.keep_alive = reader.u16()
    if is_v5:
        connect.properties = decode_properties(reader, kind)
        _check_authentication(connect.properties)
    connect.client_id = reader.string()
    if has_will:
        connect.will = _will(reader, flags, is_v5)
    if has_user:
        connect.username = reader.string()
    if has_password:
        connect.password = reader.binary()
    return connect


def _will(reader: Reader, flags: int, is_v5: bool) -> Will:
    properties = decode_properties(reader, WILL) if is_v5 else None
    topic = reader.string()
    if not is_topic_name(topic):
        raise RemoteProtocolError(ReasonCode.TOPIC_NAME_INVALID, "the will's topic name is empty or has wildcards")
    payload = reader.binary()
    if properties is not None:
        check_payload_format(payload, properties)
    return Will(topic, payload, flags >> 3 & 3, bool(flags & 0x20), properties)


def _check_authentication(properties: Mapping[str, object] | None) -> None:
    if properties and "authentication_data" in properties and "authentication_method" not in properties:
        raise protocol_error("authentication_data is present without authentication_method")  # 3.1.2.11.10


def _reason(kind: int, value: int) -> ReasonCode:
    reason = ALLOWED_REASONS[kind].get(value)
    if reason is None:
        raise protocol_error(f"{PacketType(kind).name} has the invalid reason code 0x{value:02X}")
    return reason


def _connack(kind: int, reader: Reader, is_v5: bool) -> Connack:
    flags, value = reader.u8(), reader.u8()
    if flags > 1:
        raise malformed("the reserved flags of CONNACK are set")  # [MQTT-3.2.2-1]
    if flags and value:
        raise protocol_error("CONNACK refuses, yet has Session Present")  # [MQTT-3.2.2-6]
    if is_v5:
        return Connack(bool(flags), _reason(kind, value), decode_properties(reader, kind))
    if value > max(codes.ConnectReturnCode):
        raise protocol_error(f"CONNACK has the invalid return code {value}")
    return Connack(bool(flags), codes.ConnectReturnCode(value))


_ACKS: Final[Mapping[int, type[Puback | Pubrec | Pubrel | Pubcomp]]] = {
    PacketType.PUBACK: Puback,
    PacketType.PUBREC: Pubrec,
    PacketType.PUBREL: Pubrel,
    PacketType.PUBCOMP: Pubcomp,
}


def _ack(kind: int, reader: Reader, is_v5: bool) -> Packet:
    """PUBACK, PUBREC, PUBREL, PUBCOMP (3.4 to 3.7); an omitted reason code and omitted properties mean success."""
    packet = _ACKS[kind](reader.packet_id())
    if is_v5 and reader.has_more():
        packet.reason_code = _reason(kind, reader.u8())
        if reader.has_more():
            packet.properties = decode_properties(reader, kind)
    return packet


_FILTER_INVALID: Final = (
    "a topic filter is empty, has a wildcard that is not alone on its level, or has # before its last level"
)
_SHARED_INVALID: Final = "a shared subscription is $share/<name>/<filter>, with no + or # in its name"  # 4.8.2


def _filter(reader: Reader, is_v5: bool) -> str:
    topic_filter = reader.string()
    if not may_subscribe(topic_filter, is_v5):
        shared = is_v5 and topic_filter.startswith(SHARED_PREFIX)
        raise RemoteProtocolError(ReasonCode.TOPIC_FILTER_INVALID, _SHARED_INVALID if shared else _FILTER_INVALID)
    return topic_filter


def _subscribe(kind: int, reader: Reader, is_v5: bool) -> Subscribe:
    packet_id = reader.packet_id()
    properties = decode_properties(reader, kind) if is_v5 else None
    if not reader.has_more():
        raise protocol_error("SUBSCRIBE has no topic filter")  # [MQTT-3.8.3-2]
    filters = list[Subscription]()
    while reader.has_more():
        check_number(len(filters), "topic filters")
        filters.append(_subscription(_filter(reader, is_v5), reader.u8(), is_v5))
    return Subscribe(packet_id, filters, properties)


def _subscription(topic_filter: str, options: int, is_v5: bool) -> Subscription:
    if options & (0xC0 if is_v5 else 0xFC):
        raise malformed("reserved bits of the subscription options are set")  # [MQTT-3.8.3-5]
    qos, no_local, retain_handling = options & 3, bool(options & 4), options >> 4
    if qos == 3 or retain_handling == 3:
        raise protocol_error("a subscription has QoS 3 or Retain Handling 3")  # 3.8.3.1
    if no_local and topic_filter.startswith(SHARED_PREFIX):
        raise protocol_error("No Local is set on a shared subscription")  # [MQTT-3.8.3-4]
    return Subscription(topic_filter, qos, no_local, bool(options & 8), retain_handling)


def _unsubscribe(kind: int, reader: Reader, is_v5: bool) -> Unsubscribe:
    packet_id = reader.packet_id()
    properties = decode_properties(reader, kind) if is_v5 else None
    if not reader.has_more():
        raise protocol_error("UNSUBSCRIBE has no topic filter")  # [MQTT-3.10.3-2]
    filters = list[str]()
    while reader.has_more():
        check_number(len(filters), "topic filters")
        filters.append(_filter(reader, is_v5))
    return Unsubscribe(packet_id, filters, properties)


def _suback(kind: int, reader: Reader, is_v5: bool) -> Suback:
    packet_id = reader.packet_id()
    properties = decode_properties(reader, kind) if is_v5 else None
    codes_in_order = [_reason(kind, value) for value in reader.take(reader.end - reader.pos)]
    if not is_v5 and not {0, 1, 2, 0x80}.issuperset(codes_in_order):
        raise malformed("SUBACK has a reserved return code")  # [MQTT-3.9.3-2] of 3.1.1
    return Suback(packet_id, codes_in_order, properties)


def _unsuback(kind: int, reader: Reader, is_v5: bool) -> Unsuback:
    packet_id = reader.packet_id()
    if not is_v5:
        return Unsuback(packet_id)
    properties = decode_properties(reader, kind)
    return Unsuback(packet_id, [_reason(kind, value) for value in reader.take(reader.end - reader.pos)], properties)


def _disconnect(kind: int, reader: Reader, is_v5: bool) -> Disconnect:
    if not is_v5 or not reader.has_more():
        return Disconnect()
    reason = _reason(kind, reader.u8())
    return Disconnect(reason, decode_properties(reader, kind) if reader.has_more() else None)


def _auth(kind: int, reader: Reader, is_v5: bool) -> Auth:
    if not reader.has_more():
        return Auth()
    reason = _reason(kind, reader.u8())
    properties = decode_properties(reader, kind)
    _check_authentication(properties)
    return Auth(reason, properties)


FIXED_FLAGS: Final[Mapping[int, int]] = {
    PacketType.PUBREL: 2,
    PacketType.SUBSCRIBE: 2,
    PacketType.UNSUBSCRIBE: 2,
}

DECODERS: Final[Mapping[int, Callable[[int, Reader, bool], Packet]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    **dict.fromkeys(_ACKS, _ack),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda kind, reader, is_v5: Pingreq(),
    PacketType.PINGRESP: lambda kind, reader, is_v5: Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
