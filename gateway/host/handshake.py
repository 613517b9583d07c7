"""Translates CONNECT for the authenticator and the home (MQTT 5.0, 3.1; R11)."""

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from gateway.host.authenticator import Credentials, NotAdmitted
from gateway.host.connection import Transport
from gateway.host.outbound import PublishEncoder
from gateway.shard.arrivals import REPLY_CLIENTS, Arrival
from gateway.shard.platform_marks import is_forged
from gateway.shard.rules import ClientRules
from mqtt.aliases import OutboundAliases
from mqtt.codes import ALLOWED_REASONS, VERSION_5, PacketType, ReasonCode
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT
from mqtt.packets import Connect, Publish
from mqtt.properties import WILL, forwarded_section
from mqtt.topics import is_bridge_state, is_topic_name
from schemas.reserved_topics import is_reserved
from schemas.session_log import WillRecord
from schemas.settings import GatewayLimits

_NAMES_TRIED: Final = 64
_FOLLOWS: Final = ("server-reference", "follow")
"""The user property of CONNECT by which a client says so."""


def client_id(connect: Connect, is_here: Callable[[str], bool]) -> str:
    """The client's own identifier, or a new one (3.1.3.1) for which `is_here` says that its home is at this gateway. If
    none is found soon, this gateway has hardly a shard, and any will do."""
    if connect.client_id:
        return connect.client_id
    name = ""
    for _ in range(_NAMES_TRIED):
        name = f"auto-{uuid4().hex}"
        if is_here(name):
            break
    return name


def credentials_of(connect: Connect, transport: Transport, is_here: Callable[[str], bool]) -> Credentials:
    """Whose CONNECT it is, as far as the client says and its transport has proven; `is_here` as in `client_id`."""
    return Credentials(
        client_id(connect, is_here),
        connect.username,
        connect.password,
        transport.certificate,
        transport.peer,
        transport.bearer,
    )


def follows_reference(connect: Connect) -> bool:
    """Whether the client says that it connects to the server that a Server Reference names (MQTT 5.0, 4.11)."""
    return _FOLLOWS in (connect.properties or {}).get("user_property", ())


def granted_expiry(connect: Connect, limits: GatewayLimits) -> int:
    """Seconds that the session outlives its connection; 3.1.1 can only request whether it does."""
    if connect.version == VERSION_5:
        asked: int = (connect.properties or {}).get("session_expiry_interval", 0)
        return min(asked, limits.session_expiry_s)
    return 0 if connect.clean_start else limits.session_expiry_s


def outbound_encoder(connect: Connect, limits: GatewayLimits, clock: Callable[[], float]) -> PublishEncoder:
    """The encoder for deliveries to the client, with as many topic aliases as both sides allow (3.1.2.11.5)."""
    taken = (connect.properties or {}).get("topic_alias_maximum", 0) if connect.version == VERSION_5 else 0
    most = min(taken, limits.client_topic_alias_maximum)
    return PublishEncoder(connect.version, OutboundAliases(most) if most else None, clock)


def connack_properties(connect: Connect, client: str, expiry_s: int, response_prefix: str) -> dict[str, Any]:
    """What CONNACK tells a client besides limits (3.2.2.3): the session's expiry if it is not the one asked for, and
    the topic for its responses."""
    properties: dict[str, Any] = {}
    if connect.version == VERSION_5 and expiry_s != (connect.properties or {}).get("session_expiry_interval", 0):
        properties["session_expiry_interval"] = expiry_s
    if answers := response_information(connect, client, response_prefix):
        properties["response_information"] = answers
    return properties


def response_information(connect: Connect, client: str, prefix: str) -> str | None:
    """The topic for the client's responses, if the client requests one and `prefix` is set (3.1.2.11.6, 3.2.2.3.15).

    None also for a client whose identifier cannot be part of a topic name.
    """
    if not prefix or not (connect.properties or {}).get("request_response_information"):
        return None
    topics = f"{prefix}{client}/"
    return topics if is_topic_name(topics) else None


def arrival_of(
    connect: Connect, credentials: Credentials, rules: ClientRules, expiry_s: int, limits: GatewayLimits
) -> Arrival:
    """The client as the home expects it. Raises NotAdmitted if its identifier is reserved, if that or the will is too
    long, or if `rules` or the gateway do not allow its will. The will of a bridge that publishes its state is left
    out."""
    if len(credentials.client.encode()) > limits.client_id_bytes:
        detail = f"the client identifier is longer than {limits.client_id_bytes} bytes"
        raise NotAdmitted(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, detail)
    if credentials.client.startswith(REPLY_CLIENTS):
        detail = f"client identifiers that begin with {REPLY_CLIENTS} are those of requests over HTTP: choose another"
        raise NotAdmitted(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, detail)
    asked = connect.properties or {}
    window = min(asked.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT), limits.client_receive_maximum)
    protocol = "mqtt5" if connect.version == VERSION_5 else "mqtt3.1.1"
    if credentials.bearer != "mqtt":
        protocol += f"+{credentials.bearer}"
    return Arrival(
        credentials.client,
        connect.clean_start,
        expiry_s,
        _will_record(connect, rules, limits.will_bytes),
        window,
        credentials.peer,
        protocol,
        rules,
        hears_refusals=connect.version == VERSION_5,
    )


def _will_record(connect: Connect, rules: ClientRules, most_bytes: int) -> WillRecord | None:
    will = connect.will
    if will is None or is_bridge_state(will.topic):
        return None
    if is_reserved(will.topic):
        raise NotAdmitted(ReasonCode.TOPIC_NAME_INVALID, "the will is for a topic reserved for the gateway")
    if is_forged(will.properties or {}):
        raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "the will has a user property that only the platform may use")
    flags = ""
    if not rules.open:
        packet = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        reason, flags = rules.publish(packet)
        if reason is not ReasonCode.SUCCESS:
            known = reason in ALLOWED_REASONS[PacketType.CONNACK] and reason is not ReasonCode.PACKET_TOO_LARGE
            raise NotAdmitted(reason if known else ReasonCode.QUOTA_EXCEEDED, f"the will is refused: {reason.name}")
    asked = will.properties or {}
    section = forwarded_section(asked, WILL)
    if len(will.topic.encode()) + len(will.payload) + len(section) > most_bytes:  # it must fit into a Kafka record
        raise NotAdmitted(ReasonCode.QUOTA_EXCEEDED, f"the will is larger than {most_bytes} bytes")
    delay, expiry = asked.get("will_delay_interval", 0), asked.get("message_expiry_interval")
    return WillRecord(will.topic, will.payload, will.qos, will.retain, section, delay, expiry, flags)
