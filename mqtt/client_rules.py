"""What a client must not say in well-formed packets, which depends on the server or on an earlier packet."""

from mqtt import codes
from mqtt.codes import ReasonCode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Connect, Disconnect
from mqtt.wire import protocol_error


def connect_fault(packet: Connect) -> RemoteProtocolError | None:
    """Why this CONNECT cannot be accepted, None if it can."""
    if "authentication_method" in (packet.properties or {}):
        detail = "enhanced authentication is not supported"
        return RemoteProtocolError(ReasonCode.BAD_AUTHENTICATION_METHOD, detail)
    if not packet.client_id and not packet.clean_start and packet.version == codes.VERSION_3_1_1:
        detail = "a client without an identifier needs a clean session"  # [MQTT-3.1.3-8] of 3.1.1
        return RemoteProtocolError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, detail)
    return None


def check_disconnect(packet: Disconnect, connect: Connect | None) -> None:
    """`connect` is what the connection began with. Raises RemoteProtocolError."""
    properties = packet.properties or {}
    if "server_reference" in properties:
        raise protocol_error("a client must not send a server reference")
    before = ((connect.properties if connect is not None else None) or {}).get("session_expiry_interval", 0)
    if not before and properties.get("session_expiry_interval", 0):
        raise protocol_error("the session expiry interval was 0 and cannot be set by DISCONNECT")  # 3.14.2.2.2
