"""The CONNACK that refuses a CONNECT, in either version (MQTT 5.0, 3.2.2.2; MQTT 3.1.1, 3.2.2.3)."""

from typing import Final

from mqtt import codes
from mqtt.codes import ALLOWED_REASONS, RETURN_CODES, ConnectReturnCode, PacketType, ReasonCode
from mqtt.packets import Connack, Properties

# A 3.1.1 CONNECT that violates section 3.1 gets no CONNACK [MQTT-3.1.4-1 of 3.1.1].
_NOT_CONFORMING: Final = frozenset(
    {ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR, ReasonCode.TOPIC_NAME_INVALID}
)


def refusing(
    version: int, reason: ReasonCode, properties: Properties | None, *, is_well_formed: bool
) -> Connack | None:
    """CONNACK with `reason`, or the nearest available code: 0x80 on 5.0, return code 3 on 3.1.1. None means no answer:
    only for a 3.1.1 CONNECT that is not `is_well_formed`."""
    if version == codes.VERSION_5:
        is_known = reason in ALLOWED_REASONS[PacketType.CONNACK] and reason >= ReasonCode.UNSPECIFIED_ERROR
        return Connack(False, reason if is_known else ReasonCode.UNSPECIFIED_ERROR, properties)
    if reason in _NOT_CONFORMING and not is_well_formed:
        return None
    return Connack(False, RETURN_CODES.get(reason, ConnectReturnCode.SERVER_UNAVAILABLE))
