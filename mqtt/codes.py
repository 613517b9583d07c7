"""The numbers of MQTT: packet types, qualities of service, reason codes, return codes.

Sources: MQTT 5.0 sections 2.1.2 (packet types), 2.4 and the reason-code table of each packet; MQTT 3.1.1 table 3.1.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

VERSION_3_1_1: Final = 4
VERSION_5: Final = 5

AT_MOST_ONCE: Final = 0
AT_LEAST_ONCE: Final = 1
EXACTLY_ONCE: Final = 2


class PacketType(IntEnum):
    """MQTT Control Packet type, the upper four bits of the first byte (MQTT 5.0, 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ReasonCode(IntEnum):
    """Reason codes of MQTT 5.0 (2.4); 0x80 and above are failures."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ConnectReturnCode(IntEnum):
    """Return codes of the 3.1.1 CONNACK (MQTT 3.1.1, table 3.1)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


# Return codes of a 3.1.1 CONNACK; a reason that is not listed has no return code of its own.
RETURN_CODES: Final[Mapping[ReasonCode, ConnectReturnCode]] = MappingProxyType(
    {
        ReasonCode.SUCCESS: ConnectReturnCode.ACCEPTED,
        ReasonCode.UNSPECIFIED_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ConnectReturnCode.IDENTIFIER_REJECTED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.BAD_AUTHENTICATION_METHOD: ConnectReturnCode.NOT_AUTHORIZED,
        ReasonCode.NOT_AUTHORIZED: ConnectReturnCode.NOT_AUTHORIZED,
        ReasonCode.BANNED: ConnectReturnCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID: ConnectReturnCode.NOT_AUTHORIZED,  # the topic of its will
        ReasonCode.SERVER_UNAVAILABLE: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_SHUTTING_DOWN: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.QUOTA_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.USE_ANOTHER_SERVER: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_MOVED: ConnectReturnCode.SERVER_UNAVAILABLE,
        ReasonCode.CONNECTION_RATE_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
    }
)


def _reasons(*codes: int) -> Mapping[int, ReasonCode]:
    return MappingProxyType({code: ReasonCode(code) for code in codes})


_PUBLISH_ANSWERS = _reasons(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASE_ANSWERS = _reasons(0x00, 0x92)

# The reason codes that each packet may carry. 0x8C in DISCONNECT follows section 2.4; the table in 3.14.2.1 omits it.
ALLOWED_REASONS: Final[Mapping[int, Mapping[int, ReasonCode]]] = MappingProxyType(
    {
        PacketType.CONNACK: _reasons(
            *(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)
        ),
        PacketType.PUBACK: _PUBLISH_ANSWERS,
        PacketType.PUBREC: _PUBLISH_ANSWERS,
        PacketType.PUBREL: _RELEASE_ANSWERS,
        PacketType.PUBCOMP: _RELEASE_ANSWERS,
        PacketType.SUBACK: _reasons(
            *(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
        ),
        PacketType.UNSUBACK: _reasons(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
        PacketType.DISCONNECT: _reasons(
            *(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)),
        ),
        PacketType.AUTH: _reasons(0x00, 0x18, 0x19),
    }
)
