"""The state of a connection as a value, so that another process can go on with it (R5). Pure.

`export` takes the state of a connected :class:`mqtt.server_connection.ServerConnection`, and `resume` makes one that
goes on where the other stopped: in the middle of a packet, with the aliases that the client has set, and with its
limits as CONNACK has told them, whatever the limits of the new process are. The password of CONNECT is not part of it,
nor is what the will says: only whether there is one.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mqtt.aliases import InboundAliases, OutboundAliases
from mqtt.counters import TrafficCounters
from mqtt.decode import Decoder
from mqtt.limits import ConnectionLimits
from mqtt.packets import Connect, Properties, Will
from mqtt.server_connection import ServerConnection
from mqtt.server_state import State

U16 = Annotated[int, Meta(ge=0, le=65_535)]
U32 = Annotated[int, Meta(ge=0, le=1 << 32)]
PacketId = Annotated[int, Meta(ge=1, le=65_535)]
Seconds = Annotated[float, Meta(ge=0.0)]


class ConnectionState(msgspec.Struct, frozen=True):
    """Of a connection that is connected. `keep_alive_s`: in force, 0 for none; `idle_s`: since the client's last
    packet; `packet_bytes`: the largest packet that the client may send; `client_packet_bytes`: that it accepts;
    `receive_maximum`, `unanswered`, `aliases`: of the client's PUBLISH packets; `unread`: the beginning of a packet.
    The last fields are properties of CONNECT (MQTT 5.0, 3.1.2.11)."""

    version: Literal[4, 5]
    client: str
    keep_alive_s: U16
    idle_s: Seconds
    packet_bytes: Annotated[int, Meta(ge=2, le=268_435_460)]
    client_packet_bytes: U32
    receive_maximum: U32
    unanswered: U32
    alias_maximum: U16
    aliases: dict[PacketId, str]
    has_will: bool
    unread: bytes
    session_expiry_s: U32 = 0
    request_problem_information: bool = True
    user_properties: list[tuple[str, str]] = []


class OutboundAliasState(msgspec.Struct, frozen=True):
    """Topics by their alias, 1 for the first, of at most `maximum`; `next` is which one a new topic gets, from 0 on."""

    maximum: U16
    topics: list[str]
    next: U16


def export(connection: ServerConnection, client: str, now: float) -> ConnectionState | None:
    """The state of the connection of `client`; None if it is not connected, or owes bytes to its transport."""
    connect, version = connection.connect, connection.version
    if connection.state is not State.CONNECTED or connect is None or connection._out or connection._decoder.error:
        return None
    properties = connect.properties or {}
    return ConnectionState(
        5 if version == 5 else 4,
        client,
        connection._keep_alive_s,
        max(0.0, now - connection._deadline_base),
        connection._limits.max_packet_size,
        connection._peer_max_packet_size,
        connection._receive_maximum,
        connection._unanswered,
        connection._limits.topic_alias_maximum,
        dict(connection._aliases._topics or {}),
        connect.will is not None,
        bytes(connection._decoder._partial or b""),
        properties.get("session_expiry_interval", 0),
        bool(properties.get("request_problem_information", 1)),
        list(properties.get("user_property", ())),
    )


def resume(
    state: ConnectionState, limits: ConnectionLimits, now: float, counters: TrafficCounters | None = None
) -> ServerConnection:
    """The connection goes on; `limits` are those of this process for others. Give it `state.unread` before all that
    comes from the client."""
    limits = ConnectionLimits(
        state.packet_bytes,
        limits.receive_maximum,
        state.alias_maximum,
        limits.keep_alive_max_s,
        limits.connect_timeout_s,
        limits.held_bytes_max,
    )
    connection = ServerConnection(limits, now - state.idle_s, counters)
    connection._decoder = Decoder(state.packet_bytes, state.version)
    connection._aliases = InboundAliases(state.alias_maximum)
    connection._aliases._topics = dict(state.aliases) or None
    connection._keep_alive_s = state.keep_alive_s
    connection._peer_max_packet_size = state.client_packet_bytes
    connection._receive_maximum, connection._unanswered = state.receive_maximum, state.unanswered
    connection.connect = _connect(state)
    connection.state = State.CONNECTED
    return connection


def keep_alive_since(connection: ServerConnection, at: float) -> None:
    """The client's last packet came at this time."""
    connection._deadline_base = at


def _connect(state: ConnectionState) -> Connect:
    """What is asked of a CONNECT later."""
    properties: Properties = {}
    if state.version == 5:
        properties = {
            "session_expiry_interval": state.session_expiry_s,
            "request_problem_information": int(state.request_problem_information),
            "user_property": state.user_properties,
        }
    will = Will("") if state.has_will else None
    return Connect(state.client, state.version, False, state.keep_alive_s, will=will, properties=properties or None)


def export_aliases(aliases: OutboundAliases | None) -> OutboundAliasState:
    """The aliases that the client has been told; None for a client that takes none."""
    if aliases is None:
        return OutboundAliasState(0, [], 0)
    return OutboundAliasState(aliases._maximum, list(aliases._topics), aliases._next)


def resume_aliases(state: OutboundAliasState) -> OutboundAliases | None:
    """Those that a client knows, and room for more; None if it takes none, or if the state is none that could be: no
    client is wronged by topics in full."""
    if not state.maximum or len(state.topics) > state.maximum or len(set(state.topics)) < len(state.topics):
        return None
    aliases = OutboundAliases(state.maximum)
    for topic in state.topics:
        aliases.sent(topic)
    if len(state.topics) == state.maximum:
        aliases._next = state.next % state.maximum
    return aliases
