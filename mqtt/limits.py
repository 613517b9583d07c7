"""The server's limits for one connection, and how CONNACK announces them (MQTT 5.0, 3.2.2.3)."""

from dataclasses import dataclass
from typing import Final

from mqtt.packets import Connect, Properties

PACKET_ID_MAX: Final = 65_535  # packet ids begin with 1 (2.2.1)
RECEIVE_MAXIMUM_DEFAULT: Final = 65_535  # if CONNECT or CONNACK has none (3.1.2.11.3, 3.2.2.3.3)
EXPIRY_MAX_S: Final = 4_294_967_295  # the longest Message Expiry Interval (3.3.2.3.3)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The server's limits for one connection; CONNACK announces them to MQTT 5.0 clients."""

    max_packet_size: int = 1_048_576  # bytes of an inbound packet, fixed header included
    receive_maximum: int = 1_024  # unanswered inbound PUBLISH of QoS 1 and 2; MQTT 5.0 only
    topic_alias_maximum: int = 16
    keep_alive_max_s: int = 0  # Server Keep Alive if the client requests a longer one or none; 0: no limit
    connect_timeout_s: float = 10.0  # from the start to a complete CONNECT
    held_bytes_max: int = 65_536  # sent after CONNECT and before its answer


def announcement(
    limits: ConnectionLimits, connect: Connect, assigned_client_id: str | None, properties: Properties | None
) -> Properties:
    """The properties of the CONNACK that accepts a 5.0 `connect`; `properties` override those from `limits`."""
    announced: Properties = {"maximum_packet_size": limits.max_packet_size}
    if limits.receive_maximum < RECEIVE_MAXIMUM_DEFAULT:
        announced["receive_maximum"] = limits.receive_maximum
    if limits.topic_alias_maximum:
        announced["topic_alias_maximum"] = limits.topic_alias_maximum
    if limits.keep_alive_max_s and not 0 < connect.keep_alive <= limits.keep_alive_max_s:
        announced["server_keep_alive"] = limits.keep_alive_max_s
    if assigned_client_id is not None:
        announced["assigned_client_identifier"] = assigned_client_id
    return announced | (properties or {})
