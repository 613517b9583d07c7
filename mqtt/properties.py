"""The properties of MQTT 5.0 (2.2.2) as a plain dict from the specification's names in snake_case to values.

Integers are int, strings str, binary data bytes. `user_property` is a list of (name, value) pairs in order, and
`subscription_identifier` a list of int, since both may occur more than once.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from mqtt.codes import PacketType, ReasonCode
from mqtt.errors import LocalProtocolError, RemoteProtocolError
from mqtt.packets import Properties
from mqtt.topics import is_topic_name
from mqtt.wire import (
    Reader,
    check_number,
    malformed,
    protocol_error,
    write_binary,
    write_string,
    write_uint,
    write_varint,
)
from schemas import envelope

WILL: Final = 0  # the property set of a will, which is not a packet of its own
NO_PROPERTIES: Final = envelope.NO_PROPERTIES


class Kind(Enum):
    """The data type of a property (2.2.2.2)."""

    FLAG = auto()  # a byte that is 0 or 1
    U16 = auto()
    U32 = auto()
    VARINT = auto()
    STRING = auto()
    BINARY = auto()
    PAIR = auto()


class Property(NamedTuple):
    """A row of table 2-4 of MQTT 5.0: `places` are packet types, or WILL."""

    identifier: int
    name: str
    kind: Kind
    places: frozenset[int]
    read: Callable[[Reader], int | str | bytes | tuple[str, str]]
    if_zero: ReasonCode | None  # the error for the value 0, if 0 is not allowed


def _read_pair(reader: Reader) -> tuple[str, str]:
    return reader.string(), reader.string()


_READ: Final[Mapping[Kind, Callable[[Reader], int | str | bytes | tuple[str, str]]]] = {
    Kind.FLAG: Reader.u8,
    Kind.U16: Reader.u16,
    Kind.U32: Reader.u32,
    Kind.VARINT: Reader.varint,
    Kind.STRING: Reader.string,
    Kind.BINARY: Reader.binary,
    Kind.PAIR: _read_pair,
}

_P = PacketType
_MESSAGE = (_P.PUBLISH, WILL)
_ANSWERS = (_P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.SUBACK, _P.UNSUBACK)
_ALL = (_P.CONNECT, _P.CONNACK, *_MESSAGE, *_ANSWERS, _P.SUBSCRIBE, _P.UNSUBSCRIBE, _P.DISCONNECT, _P.AUTH)

_ROWS: tuple[tuple[int, str, Kind, tuple[int, ...]], ...] = (
    (0x01, "payload_format_indicator", Kind.FLAG, _MESSAGE),
    (0x02, "message_expiry_interval", Kind.U32, _MESSAGE),
    (0x03, "content_type", Kind.STRING, _MESSAGE),
    (0x08, "response_topic", Kind.STRING, _MESSAGE),
    (0x09, "correlation_data", Kind.BINARY, _MESSAGE),
    (0x0B, "subscription_identifier", Kind.VARINT, (_P.PUBLISH, _P.SUBSCRIBE)),
    (0x11, "session_expiry_interval", Kind.U32, (_P.CONNECT, _P.CONNACK, _P.DISCONNECT)),
    (0x12, "assigned_client_identifier", Kind.STRING, (_P.CONNACK,)),
    (0x13, "server_keep_alive", Kind.U16, (_P.CONNACK,)),
    (0x15, "authentication_method", Kind.STRING, (_P.CONNECT, _P.CONNACK, _P.AUTH)),
    (0x16, "authentication_data", Kind.BINARY, (_P.CONNECT, _P.CONNACK, _P.AUTH)),
    (0x17, "request_problem_information", Kind.FLAG, (_P.CONNECT,)),
    (0x18, "will_delay_interval", Kind.U32, (WILL,)),
    (0x19, "request_response_information", Kind.FLAG, (_P.CONNECT,)),
    (0x1A, "response_information", Kind.STRING, (_P.CONNACK,)),
    (0x1C, "server_reference", Kind.STRING, (_P.CONNACK, _P.DISCONNECT)),
    (0x1F, "reason_string", Kind.STRING, (_P.CONNACK, *_ANSWERS, _P.DISCONNECT, _P.AUTH)),
    (0x21, "receive_maximum", Kind.U16, (_P.CONNECT, _P.CONNACK)),
    (0x22, "topic_alias_maximum", Kind.U16, (_P.CONNECT, _P.CONNACK)),
    (0x23, "topic_alias", Kind.U16, (_P.PUBLISH,)),
    (0x24, "maximum_qos", Kind.FLAG, (_P.CONNACK,)),
    (0x25, "retain_available", Kind.FLAG, (_P.CONNACK,)),
    (0x26, "user_property", Kind.PAIR, _ALL),
    (0x27, "maximum_packet_size", Kind.U32, (_P.CONNECT, _P.CONNACK)),
    (0x28, "wildcard_subscription_available", Kind.FLAG, (_P.CONNACK,)),
    (0x29, "subscription_identifier_available", Kind.FLAG, (_P.CONNACK,)),
    (0x2A, "shared_subscription_available", Kind.FLAG, (_P.CONNACK,)),
)

# Integers that must not be 0, and the error if they are (3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.4, 3.8.2.1.2).
_NEVER_ZERO: Final[Mapping[str, ReasonCode]] = {
    "receive_maximum": ReasonCode.PROTOCOL_ERROR,
    "maximum_packet_size": ReasonCode.PROTOCOL_ERROR,
    "topic_alias": ReasonCode.TOPIC_ALIAS_INVALID,
    "subscription_identifier": ReasonCode.PROTOCOL_ERROR,
}

PROPERTIES: Final[tuple[Property, ...]] = tuple(
    Property(identifier, name, kind, frozenset(places), _READ[kind], _NEVER_ZERO.get(name))
    for identifier, name, kind, places in _ROWS
)
_BY_IDENTIFIER: Final[Mapping[int, Property]] = {row.identifier: row for row in PROPERTIES}
_BY_NAME: Final[Mapping[str, Property]] = {row.name: row for row in PROPERTIES}

# Accessing an enum member costs five times as much as a global name.
_FLAG, _PAIR, _VARINT, _PUBLISH = Kind.FLAG, Kind.PAIR, Kind.VARINT, PacketType.PUBLISH


def decode_properties(reader: Reader, place: int) -> Properties | None:
    """The property section at the reader's position, None if it is empty; `place` is a packet type or WILL.

    Raises RemoteProtocolError: 0x81 truncated, unknown, or not allowed in this packet (2.2.2.2); 0x82 a duplicate or a
    value that is not allowed; 0x94 topic alias 0; 0x90 a response topic with wildcards.
    """
    length = reader.varint()
    if not length:
        return None
    section = Reader(reader.data, reader.pos, reader.pos + length)
    if section.end > reader.end:
        raise malformed("the properties are longer than their packet")
    reader.pos = section.end
    found: Properties = {}
    while section.pos < section.end:
        identifier = section.varint()
        row = _BY_IDENTIFIER.get(identifier)
        if row is None:
            raise malformed(f"unknown property 0x{identifier:02X}")
        if place not in row.places:
            raise malformed(f"{row.name} is not allowed in this packet")
        _decode_one(section, row, place, found)
    return found


def _decode_one(section: Reader, row: Property, place: int, found: Properties) -> None:
    name, kind = row.name, row.kind
    value = row.read(section)
    if value == 0 and row.if_zero is not None:
        raise RemoteProtocolError(row.if_zero, f"{name} is 0")
    if kind is _FLAG and value not in (0, 1):
        raise protocol_error(f"{name} is neither 0 nor 1")
    if kind is _PAIR or (kind is _VARINT and place == _PUBLISH):
        values = found.setdefault(name, [])
        check_number(len(values), "user properties" if kind is _PAIR else "subscription identifiers")
        values.append(value)
        return
    if name in found:
        raise protocol_error(f"{name} occurs twice")
    if name == "response_topic" and not is_topic_name(str(value)):
        raise RemoteProtocolError(ReasonCode.TOPIC_NAME_INVALID, "response_topic is not a valid topic name")
    found[name] = [value] if kind is _VARINT else value


def encode_properties(properties: Properties | None, place: int) -> bytes:
    """The property section with its length; LocalProtocolError for a name or a value that is not allowed there."""
    if not properties:
        return NO_PROPERTIES
    encoded = bytearray()
    for name, value in properties.items():
        row = _BY_NAME.get(name)
        if row is None or place not in row.places:
            raise LocalProtocolError(f"{name!r} is not a property of this packet")
        values = value if row.kind in (Kind.PAIR, Kind.VARINT) else (value,)
        if row.kind is Kind.VARINT and place == PacketType.SUBSCRIBE and len(values) > 1:
            raise LocalProtocolError("a SUBSCRIBE has at most one subscription_identifier")
        for item in values:
            encoded.append(row.identifier)  # every identifier is below 0x80: one byte
            encoded += _encode_one(row, item)
    return write_varint(len(encoded)) + encoded


@lru_cache(1 << 16)
def _subscription_identifier(number: int) -> bytes:
    return _BY_NAME["subscription_identifier"].identifier.to_bytes(1, "big") + write_varint(number)


def encode_subscription_identifiers(numbers: Iterable[int]) -> bytes:
    """The properties of a PUBLISH that several subscriptions match, without a section length (3.3.2.3.8)."""
    return b"".join(map(_subscription_identifier, numbers))


def _encode_one(row: Property, value: object) -> bytes:
    match row.kind, value:
        case (Kind.PAIR, (str(name), str(text))):
            return write_string(name) + write_string(text)
        case (Kind.STRING, str(text)):
            return write_string(text)
        case (Kind.BINARY, bytes(data)):
            return write_binary(data)
        case (Kind.FLAG, int(number)) if number in (0, 1):
            return write_uint(number, 1)
        case (Kind.U16 | Kind.U32 | Kind.VARINT, int(number)) if number or row.if_zero is None:
            if row.kind is Kind.VARINT:
                return write_varint(number)
            return write_uint(number, 2 if row.kind is Kind.U16 else 4)
    raise LocalProtocolError(f"{value!r} is not a valid value for {row.name}")


FORWARDED: Final[tuple[str, ...]] = (
    "payload_format_indicator",
    "content_type",
    "response_topic",
    "correlation_data",
    "user_property",
)
"""Names of the properties of a PUBLISH or will that recipients get unaltered (3.3.2.3, [MQTT-3.3.2-17])."""


def forwarded_section(properties: Properties | None, place: int) -> bytes:
    """The section with those properties of a PUBLISH or will that are :data:`FORWARDED`."""
    kept = {name: properties[name] for name in FORWARDED if name in properties} if properties else None
    return encode_properties(kept, place)


def check_forwarded(section: bytes) -> None:
    """Raises RemoteProtocolError unless the section is one of :func:`forwarded_section`, which recipients get as it
    is."""
    reader = Reader(section, 0, len(section))
    found = decode_properties(reader, PacketType.PUBLISH)
    if reader.pos < reader.end:
        raise malformed("bytes follow the properties")
    if others := [name for name in found or () if name not in FORWARDED]:
        raise malformed(f"not for recipients: {', '.join(others)}")
