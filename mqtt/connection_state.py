"""The state of a connection as a value, so that another process can go on with it (R5).

:meth:`mqtt.server_connection.ServerConnection.export` makes it, and `resumed` goes on where the other stopped: in the
middle of a packet, with the aliases that the client has set, and with its limits as CONNACK has told them, whatever
the limits of the new process are. The password of CONNECT is not part of it, nor is what the will says: only whether
there is one.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from mqtt.packets import Connect, Properties, Will

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

    @property
    def connect(self) -> Connect:
        """What is asked of a CONNECT later."""
        properties: Properties = {}
        if self.version == 5:
            properties = {
                "session_expiry_interval": self.session_expiry_s,
                "request_problem_information": int(self.request_problem_information),
                "user_property": self.user_properties,
            }
        will = Will("") if self.has_will else None
        return Connect(self.client, self.version, False, self.keep_alive_s, will=will, properties=properties or None)


class OutboundAliasState(msgspec.Struct, frozen=True):
    """Topics by their alias, 1 for the first, of at most `maximum`; `next` is which one a new topic gets, from 0 on."""

    maximum: U16
    topics: list[str]
    next: U16


NO_ALIASES: Final = OutboundAliasState(0, [], 0)
"""Of a client that takes none."""
