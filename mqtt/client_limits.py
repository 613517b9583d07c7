"""The client's own limits, and those of the server's CONNACK (MQTT 5.0, 3.2.2.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqtt import codes
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError, ServerLimitError
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT
from mqtt.packets import Connack, Publish, Subscription
from mqtt.topics import SHARED_PREFIX, may_subscribe
from mqtt.wire import HEADER_BYTES_MAX, MANY, VARINT_MAX

PACKET_SIZE_MAX: Final = VARINT_MAX + HEADER_BYTES_MAX  # of MQTT
PACKET_SIZE_UNLIMITED: Final = 1 << 32
UNREAD_ANSWER_BYTES: Final = 1 << 20
"""A server that reads has fewer: 65,535 packet ids in each direction, and two answers of 4 bytes for each."""
_IN_FLIGHT_3_1_1: Final = 20


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The client's limits that are not in its CONNECT. The CONNECT properties `receive_maximum`, `topic_alias_maximum`
    and `maximum_packet_size` limit the server; they are enforced. A server of 3.1.1 cannot be told: the payload of a
    message above `max_packet_size` is discarded, and LargePublish says so."""

    connect_timeout_s: float = 10.0  # from CONNECT to a complete CONNACK
    ping_timeout_s: float = 20.0  # from PINGREQ to PINGRESP, if nothing else arrives
    in_flight_max: int | None = None  # messages sent and not acknowledged; None: see :func:`in_flight_max`
    topic_aliases_max: int = 0  # for messages we send; the server's topic alias maximum may be lower
    max_packet_size: int = PACKET_SIZE_MAX  # bytes of an inbound packet, if CONNECT does not set it
    unread_answer_bytes: int = UNREAD_ANSWER_BYTES  # PUBACK, PUBREC, PUBREL, PUBCOMP that the server has not read


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the server accepts, according to its CONNACK; the defaults are those of MQTT and apply to 3.1.1."""

    receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT
    topic_alias_maximum: int = 0
    maximum_packet_size: int = PACKET_SIZE_UNLIMITED
    maximum_qos: int = 2
    retain_available: int = 1
    wildcard_subscription_available: int = 1
    shared_subscription_available: int = 1
    subscription_identifier_available: int = 1

    @classmethod
    def of(cls, connack: Connack) -> "ServerLimits":
        properties = connack.properties or {}
        return cls(**{name: properties[name] for name in cls.__dataclass_fields__ if name in properties})

    def check_publish(self, packet: Publish, size: int) -> None:
        """ServerLimitError if the server would refuse the message, which has `size` bytes on the wire."""
        if packet.qos > self.maximum_qos:  # [MQTT-3.2.2-11]
            detail = f"the server accepts messages up to QoS {self.maximum_qos}"
            raise ServerLimitError(ReasonCode.QOS_NOT_SUPPORTED, detail)
        if packet.retain and not self.retain_available:  # [MQTT-3.2.2-14]
            raise ServerLimitError(ReasonCode.RETAIN_NOT_SUPPORTED, "the server does not support retained messages")
        self.check_size(size)

    def check_size(self, size: int) -> None:
        """ServerLimitError if the server accepts no packet of this size [MQTT-3.2.2-15]."""
        if size > self.maximum_packet_size:
            detail = f"a packet of {size} bytes is larger than the server accepts ({self.maximum_packet_size} bytes)"
            raise ServerLimitError(ReasonCode.PACKET_TOO_LARGE, detail)

    def check_subscribe(self, filters: list[Subscription], has_identifier: bool) -> None:
        """ServerLimitError if an MQTT 5.0 server would refuse one of the filters."""
        names = [subscription.filter for subscription in filters]
        if not self.shared_subscription_available and any(name.startswith(SHARED_PREFIX) for name in names):
            reason = ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            raise ServerLimitError(reason, "the server does not support shared subscriptions")
        if not self.wildcard_subscription_available and any("+" in name or "#" in name for name in names):
            reason = ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
            raise ServerLimitError(reason, "the server does not support subscriptions with wildcards")
        if has_identifier and not self.subscription_identifier_available:
            reason = ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
            raise ServerLimitError(reason, "the server does not support subscription identifiers")


NO_LIMITS: Final = ServerLimits()


def in_flight_max(limits: ClientLimits, server: ServerLimits, version: int) -> int:
    """How many messages may be sent and not acknowledged (4.9). A 5.0 server announces its limit. A 3.1.1 server
    cannot: mosquitto by default takes 20, drops the rest, and still answers PUBACK."""
    most = limits.in_flight_max
    if most is None:
        most = RECEIVE_MAXIMUM_DEFAULT if version == codes.VERSION_5 else _IN_FLIGHT_3_1_1
    return min(most, server.receive_maximum)


def check_subscriptions(wanted: Sequence[Subscription], is_v5: bool) -> None:
    """LocalProtocolError if a server must not accept them: it would end the connection."""
    check_filters([one.filter for one in wanted], is_v5)
    for one in wanted:
        if is_v5 and one.no_local and one.filter.startswith(SHARED_PREFIX):  # [MQTT-3.8.3-4]
            raise LocalProtocolError(f"{one.filter[:100]!r} is a shared subscription, which cannot have No Local")


def check_filters(filters: Sequence[str], is_v5: bool) -> None:
    """LocalProtocolError if these filters are not allowed in SUBSCRIBE and UNSUBSCRIBE."""
    if not filters:
        raise LocalProtocolError("at least one topic filter is needed")
    if len(filters) > MANY:
        raise LocalProtocolError(f"{len(filters):,} topic filters are too many for one request: give {MANY:,} at most")
    for topic_filter in filters:
        if not may_subscribe(topic_filter, is_v5):
            raise LocalProtocolError(f"{topic_filter[:100]!r} is not a topic filter")
