"""The MQTT packets as values, one type for both versions (MQTT 5.0 and 3.1.1, section 3).

Fields have the specification's names. What 3.1.1 lacks has its default there: `properties` None, reason codes success,
subscription options off. `properties` are None if there are none; :mod:`mqtt.properties` lists their names and types.
Values are checked when they are encoded, not when they are made.
"""

from typing import Any, TypeAlias

import msgspec

from mqtt.codes import ConnectReturnCode, ReasonCode

Properties: TypeAlias = dict[str, Any]


class Will(msgspec.Struct, gc=False):
    """The message that the server publishes when the connection ends without a normal DISCONNECT (5.0, 3.1.2.5)."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


class Connect(msgspec.Struct, gc=False):
    """CONNECT (3.1). `version` is 4 (3.1.1) or 5; `clean_start` is 3.1.1's Clean Session; `keep_alive` in seconds."""

    client_id: str = ""
    version: int = 5
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties | None = None


class Connack(msgspec.Struct, gc=False):
    """CONNACK (3.2). The reason is a :class:`ConnectReturnCode` when decoded from 3.1.1."""

    session_present: bool = False
    reason_code: ReasonCode | ConnectReturnCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Publish(msgspec.Struct, gc=False):
    """PUBLISH (3.3). `packet_id` is 0 at QoS 0; `topic` is empty only if a topic alias replaces it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties | None = None


class LargePublish(Publish, gc=False):
    """A PUBLISH of 3.1.1 above the receiver's limit, whose payload was left out; `size`: bytes of the packet."""

    size: int = 0


class Puback(msgspec.Struct, gc=False):
    """PUBACK (3.4): the answer to a PUBLISH of QoS 1."""

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Pubrec(msgspec.Struct, gc=False):
    """PUBREC (3.5): the first answer to a PUBLISH of QoS 2; the last one if its reason is a failure."""

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Pubrel(msgspec.Struct, gc=False):
    """PUBREL (3.6): the sender's answer to PUBREC."""

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Pubcomp(msgspec.Struct, gc=False):
    """PUBCOMP (3.7): the end of a QoS 2 exchange."""

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


class Subscription(msgspec.Struct, gc=False):
    """A topic filter with its subscription options (3.8.3.1); `qos` is the highest that the client wants."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, gc=False):
    """SUBSCRIBE (3.8)."""

    packet_id: int
    filters: list[Subscription]
    properties: Properties | None = None


class Suback(msgspec.Struct, gc=False):
    """SUBACK (3.9): one reason code per filter, in the order of the SUBSCRIBE."""

    packet_id: int
    reason_codes: list[ReasonCode]
    properties: Properties | None = None


class Unsubscribe(msgspec.Struct, gc=False):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    filters: list[str]
    properties: Properties | None = None


class Unsuback(msgspec.Struct, gc=False):
    """UNSUBACK (3.11): one reason code per filter; none on 3.1.1."""

    packet_id: int
    reason_codes: list[ReasonCode] = []
    properties: Properties | None = None


class Pingreq(msgspec.Struct, gc=False):
    """PINGREQ (3.12)."""


class Pingresp(msgspec.Struct, gc=False):
    """PINGRESP (3.13)."""


class Disconnect(msgspec.Struct, gc=False):
    """DISCONNECT (3.14); on 3.1.1 only clients send it, without a reason."""

    reason_code: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties | None = None


class Auth(msgspec.Struct, gc=False):
    """AUTH (3.15), MQTT 5.0 only."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)


def without_problem_information(packet: Packet) -> Packet:
    """The packet without reason string and user properties, which a client may decline (3.1.2.11.7, 3.2.2.3.9)."""
    properties = getattr(packet, "properties", None)
    if not properties:
        return packet
    kept = {name: value for name, value in properties.items() if name not in ("reason_string", "user_property")}
    return msgspec.structs.replace(packet, properties=kept or None)
