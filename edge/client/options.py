"""How a client connects, and as whom; and what a message may carry."""

import base64
import math
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Required, TypedDict

from edge.client.access_point import AccessPoint
from edge.client.connect_points import BEARERS, ConnectPoint, Family, family_of, parse_connect_points
from edge.client.connecting import Connecting
from edge.client.kafka_options import KafkaOptions
from edge.client.server_reference import FOLLOWS
from edge.link import QuicTls
from edge.reconnect import FullJitter
from mqtt import codes
from mqtt.packets import Connect, Properties

CLIENT_ID_BYTES_MAX: Final = 1_024  # the gateway's limit
EXPIRY: Final = "message_expiry_interval"
SESSION_EXPIRY_S: Final = 7 * 86_400
HTTP_NAME: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_HTTP_NAME_RULE: Final = "1 to 128 letters, digits and - . _ ~"
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
_VERSIONS: Final = {"3.1.1": codes.VERSION_3_1_1, "5.0": codes.VERSION_5}


class ClientOptions(TypedDict, total=False):
    """The fields of :class:`Options`, as keyword arguments. docs/client.md explains each."""

    client_id: Required[str]
    access_points: Sequence[str]
    connect_points: Sequence[str]
    bearer: str | None
    username: str | None
    password: bytes | None
    tls: ssl.SSLContext | None
    quic: QuicTls | None
    kafka: KafkaOptions | None
    http_in_order: bool
    server_hostname: str | None
    mqtt_version: str
    keep_alive_s: int
    session_expiry_s: int
    tries: int
    backoff: FullJitter


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of :meth:`Client.publish` that direct messages, requests and replies take, too."""

    qos: int
    lifetime_s: float | None
    content_type: str | None
    user_properties: Iterable[tuple[str, str]]


class RequestOptions(TypedDict, total=False):
    """Those of a request, whose lifetime is its time-out."""

    qos: int
    content_type: str | None
    user_properties: Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Options:
    """Checked by `__post_init__`, which raises ValueError. The password is not shown."""

    client_id: str
    access_points: Sequence[str] = ()
    connect_points: Sequence[str] = ()
    bearer: str | None = None
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    quic: QuicTls | None = None
    kafka: KafkaOptions | None = None
    http_in_order: bool = True
    server_hostname: str | None = None
    mqtt_version: str = "5.0"
    keep_alive_s: int = 60
    session_expiry_s: int = SESSION_EXPIRY_S
    tries: int = 2
    backoff: FullJitter = field(default_factory=FullJitter)

    def __post_init__(self) -> None:
        size = len(self.client_id.encode())
        if not 0 < size <= CLIENT_ID_BYTES_MAX or any(character in self.client_id for character in "+#\0"):
            rule = f"1 to {CLIENT_ID_BYTES_MAX} bytes, none of them +, # or NUL"
            raise ValueError(f"client_id must have {rule}, not {self.client_id!r:.100}")
        if self.mqtt_version not in _VERSIONS:
            raise ValueError(f"mqtt_version must be one of {', '.join(_VERSIONS)}, not {self.mqtt_version!r}")
        if self.bearer is not None and self.bearer not in BEARERS:
            raise ValueError(f"bearer must be one of {', '.join(BEARERS)}, not {self.bearer!r}")
        if self.bearer is not None and self.connect_points:
            raise ValueError("the connect points name their bearer: give bearer only with access_points")
        if self.password is not None and self.username is None and self.version == codes.VERSION_3_1_1:
            raise ValueError("MQTT 3.1.1 has no password without a username")
        if not 0 <= self.keep_alive_s <= 65_535:
            raise ValueError(f"keep_alive_s must be from 0 to 65535, not {self.keep_alive_s}")
        if not 0 < self.session_expiry_s <= 0xFFFFFFFF:
            raise ValueError(f"session_expiry_s must be above 0 and at most 4294967295, not {self.session_expiry_s}")
        self.machine()
        self._check_family()

    @property
    def family(self) -> Family:
        """What the connect points, or those that are asked for, have in common."""
        points = parse_connect_points(self.connect_points)
        return family_of(points[0].protocol if points else self.asked_bearer)

    @property
    def version(self) -> int:
        """The protocol level: 4 or 5."""
        return _VERSIONS[self.mqtt_version]

    @property
    def is_v5(self) -> bool:
        return self.version == codes.VERSION_5

    @property
    def asked_bearer(self) -> str:
        """The bearer to ask access points for."""
        return self.bearer or ("mqtt" if self.tls is None else "mqtts")

    def machine(self) -> Connecting[AccessPoint]:
        """A new state machine over these access points or connect points."""
        access_points = [AccessPoint.parse(url) for url in self.access_points]
        points = parse_connect_points(self.connect_points)
        return Connecting(access_points, points, tries=self.tries, backoff=self.backoff)

    def _check_family(self) -> None:
        if self.family == "http":
            if not HTTP_NAME.fullmatch(self.client_id):
                raise ValueError(f"over HTTP client_id must have {_HTTP_NAME_RULE}, not {self.client_id!r:.100}")
            if self.password is not None and self.http_credentials is None:
                raise ValueError(
                    "HTTP cannot carry these credentials: a username has no :, and a password without a "
                    "username is a token of letters, digits and -._~+/"
                )
        if self.family == "kafka":
            if self.username is not None or self.password is not None:
                raise ValueError("Kafka's credentials are in KafkaOptions, not in username and password")
        elif self.kafka is not None:
            raise ValueError("kafka is for connect points kafka://… only")

    @property
    def http_credentials(self) -> str | None:
        """The credentials as `Authorization`: Basic, or Bearer if there is only a password (RFC 7617, RFC 6750). None
        without credentials, or if HTTP cannot carry them."""
        if self.password is None:
            return None
        if self.username is None:
            return f"Bearer {self.password.decode()}" if _TOKEN.fullmatch(self.password) else None
        if ":" in self.username:
            return None
        return "Basic " + base64.b64encode(self.username.encode() + b":" + self.password).decode()

    def authorization(self, access_point: AccessPoint) -> str | None:
        """What an access point gets as `Authorization`: the client's credentials. None without any, if HTTP cannot
        carry them, or if others could read them, unless the bearer shows them anyway."""
        is_shown = not ConnectPoint(self.asked_bearer, "", 0).uses_tls
        return self.http_credentials if access_point.is_private or is_shown else None

    def connect(self, *, is_established: bool, receive_maximum: int, packet_bytes: int, follows: bool) -> Connect:
        """CONNECT. `follows`: the client goes to another gateway if it is sent there. A client without a session begins
        with a clean one: a session that the gateway has of an earlier store knows packet ids that this one does not
        [MQTT-3.2.2-4]."""
        properties: Properties | None = None
        if self.is_v5:
            properties = {
                "session_expiry_interval": self.session_expiry_s,
                "receive_maximum": receive_maximum,
                "maximum_packet_size": packet_bytes,
            }
            if follows:
                properties["user_property"] = [FOLLOWS]
        clean_start = self.is_v5 and not is_established
        return Connect(
            self.client_id, self.version, clean_start, self.keep_alive_s, self.username, self.password, None, properties
        )

    def clean_connect(self) -> Connect:
        """MQTT 3.1.1: a CONNECT that ends a session that the server may have."""
        return Connect(self.client_id, self.version, True, self.keep_alive_s, self.username, self.password)


def message_properties(
    lifetime_s: float | None,
    content_type: str | None,
    user_properties: Iterable[tuple[str, str]],
    response_topic: str | None,
    correlation: bytes | None,
) -> Properties | None:
    """Those of a PUBLISH; None if it has none."""
    found: Properties = {
        EXPIRY: None if lifetime_s is None else math.ceil(lifetime_s),
        "content_type": content_type,
        "response_topic": response_topic,
        "correlation_data": correlation,
        "user_property": list(user_properties) or None,
    }
    return {name: value for name, value in found.items() if value is not None} or None


def remaining_properties(properties: Properties | None, remaining_s: float) -> Properties | None:
    """The properties with what remains of the message's lifetime, a second at least: some servers take 0 for a message
    that never expires (MQTT 5.0, 3.3.2.3.3)."""
    if properties is None or EXPIRY not in properties:
        return properties
    return {**properties, EXPIRY: max(1, math.ceil(remaining_s))}
