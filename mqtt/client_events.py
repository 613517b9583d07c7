"""Events of a client connection, besides packets (:mod:`mqtt.client_connection`)."""

from enum import Enum, auto
from typing import TypeAlias

import msgspec

from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import Connack, Disconnect, LargePublish, Properties, Publish, Suback, Unsuback


class Published(msgspec.Struct, gc=False):
    """The exchange of an outbound QoS 1 or 2 message has ended: with PUBACK, PUBCOMP, or a PUBREC that refuses it.

    `packet_id` is what `publish` returned, and is free again. `reason_code` of 0x80 and above: the server refused the
    message, or its limits rule the message out. At QoS 2 the reason is that of PUBREC. `properties` may have a
    `reason_string`.
    """

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class SessionLost(msgspec.Struct, gc=False):
    """The server no longer has the session that this client has [MQTT-3.2.2-5]. Follows Connack and says what was lost.

    Subscriptions are lost: subscribe again. `republished`: packet ids of unacknowledged messages that are sent again as
    new messages, so the server may get them twice. `dropped`: those messages, if the session does not republish.
    `unacknowledged`: messages given to the application and not acknowledged; acknowledging them no longer has an
    effect, and the server does not send them again on its own.
    """

    republished: list[int]
    dropped: list[Publish]
    unacknowledged: list[Publish]


class EndedBy(Enum):
    """Who or what ended a connection."""

    REFUSED = auto()  # CONNACK with a failure
    SERVER = auto()  # DISCONNECT from the server
    CLIENT = auto()  # `disconnect` on this side
    TRANSPORT = auto()  # the network connection ended or broke
    TIMEOUT = auto()  # no CONNACK, or no PINGRESP, in time
    FAULT = auto()  # the server broke the protocol, or does not read what it asks for


class Closed(msgspec.Struct, gc=False):
    """The end of a connection. `detail` is a sentence for people; `properties` are those of the CONNACK or DISCONNECT
    that ended it (`reason_string`, `server_reference`). The session remains."""

    reason: ReasonCode | ConnectReturnCode
    detail: str
    by: EndedBy
    properties: Properties | None = None


Event: TypeAlias = Connack | Publish | LargePublish | Published | Suback | Unsuback | SessionLost | Disconnect | Closed
