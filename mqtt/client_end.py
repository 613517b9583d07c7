"""How the server ended a client's connection, or answered what nobody asked: pure functions of what it sent."""

from typing import Final

from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import Disconnect, Properties, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt.wire import protocol_error

_CONNACK_3_1_1: Final = b"\x20\x02\x00"


def refused(reason: ReasonCode | ConnectReturnCode, properties: Properties | None) -> Closed:
    """The end by a CONNACK that refuses the connection."""
    text = (properties or {}).get("reason_string", "")
    detail = f"the server refused the connection: {reason.name}" + (f" ({text})" if text else "")
    return Closed(reason, detail, EndedBy.REFUSED, properties)


def disconnected(packet: Disconnect) -> Closed:
    """The end by a DISCONNECT from the server."""
    text = (packet.properties or {}).get("reason_string", "")
    detail = f"the server ended the connection: {packet.reason_code.name}" + (f" ({text})" if text else "")
    return Closed(packet.reason_code, detail, EndedBy.SERVER, packet.properties)


def return_code(head: bytes) -> ConnectReturnCode | None:
    """The refusal, if these first four bytes of a server are a CONNACK of 3.1.1 that refuses. Servers that support only
    that version answer a CONNECT of 5.0 so."""
    if head[:3] == _CONNACK_3_1_1 and len(head) == 4 and 0 < head[3] < 6:
        return ConnectReturnCode(head[3])
    return None


def check_answer(packet: Suback | Unsuback, request: Subscribe | Unsubscribe | None, is_v5: bool) -> None:
    """RemoteProtocolError if the packet does not answer `request`, the open one of its packet id."""
    if type(request) is not (Subscribe if type(packet) is Suback else Unsubscribe):
        name = type(packet).__name__.upper()
        raise protocol_error(f"unexpected {name} for packet id {packet.packet_id}")
    has_codes = type(packet) is Suback or is_v5
    if has_codes and len(packet.reason_codes) != len(request.filters):  # [MQTT-3.9.3-1], [MQTT-3.11.3-2]
        raise protocol_error(f"{len(packet.reason_codes)} reason codes for {len(request.filters)} topic filters")
