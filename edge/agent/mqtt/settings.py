"""The settings of the MQTT stand-in: the tables `[mqtt…]` of the agent's file (M19)."""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from edge.agent.mqtt.topic_routes import problem_of
from edge.client.connect_points import parse_connect_points
from mqtt.topics import SHARED_PREFIX, is_topic_filter
from schemas.sections import Natural, NotEmpty, Port, Positive, Seconds, Section
from schemas.this_machine import is_loopback

STORE_FILE: Final = "mqtt"
"""In the store's directory: what waits for MQTT clients, and for what they publish to."""
QUEUE_MAX: Final = 50_000
"""Messages of one session: each has a packet id of its own while it waits."""
HEAD_BYTES: Final = 65_536
"""What the largest packet leaves of `store.message_bytes` for its envelope."""

SessionExpiry = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]


class ListenerSettings(Section, frozen=True):
    enabled: bool = False
    host: NotEmpty = "127.0.0.1"
    port: Port = 1884
    local_delivery: bool = True
    platform_subscriptions: bool = False
    platform_prefix: str = ""
    connections: Positive = 100
    packet_bytes: Annotated[int, Meta(ge=128, le=256 << 20)] = 262_144
    write_buffer_bytes: Positive = 262_144
    inflight: Annotated[int, Meta(ge=1, le=65_535)] = 100
    sessions: Positive = 1_000
    session_expiry_s: SessionExpiry = 604_800
    subscriptions: Positive = 100
    queue_messages: Annotated[int, Meta(ge=1, le=QUEUE_MAX)] = 10_000
    queue_bytes: Positive = 16 << 20
    retained_messages: Natural = 1_000
    retained_bytes: Natural = 16 << 20
    keep_alive_most_s: Annotated[int, Meta(ge=1, le=65_535)] = 3_600
    connect_timeout_s: Seconds = 10.0
    password_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class BrokerSettings(Section, frozen=True):
    enabled: bool = False
    connect_point: NotEmpty = "mqtt://127.0.0.1:1883"
    client_id: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    window_messages: Annotated[int, Meta(ge=1, le=65_535)] = 65_535
    subscriptions: dict[str, NotEmpty] = msgspec.field(default_factory=dict)


class MqttSettings(Section, frozen=True):
    messages: Positive = 100_000
    total_bytes: Positive = 256 << 20
    remembered: Positive = 1_000_000
    routes: dict[str, NotEmpty] = msgspec.field(default_factory=dict)
    listener: ListenerSettings = ListenerSettings()
    broker: BrokerSettings = BrokerSettings()

    @property
    def is_on(self) -> bool:
        return self.listener.enabled or self.broker.enabled


def broken_rules(settings: MqttSettings, message_bytes: int) -> Iterator[str]:
    """The rules between keys that are broken; `message_bytes` is that of `[store]`."""
    for topic_filter, target in settings.routes.items():
        if problem := problem_of(topic_filter, target):
            yield f"mqtt.routes: {problem}"
    if settings.listener.enabled:
        yield from _broken_in_listener(settings, message_bytes)
    if settings.broker.enabled:
        yield from _broken_in_broker(settings.broker)


def _broken_in_listener(settings: MqttSettings, message_bytes: int) -> Iterator[str]:
    listener = settings.listener
    if listener.packet_bytes + HEAD_BYTES > message_bytes:
        yield (
            f"mqtt.listener.packet_bytes = {listener.packet_bytes} leaves no space for the envelope: it must be at "
            f"least {HEAD_BYTES} below store.message_bytes = {message_bytes}"
        )
    if not is_loopback(listener.host) and not (listener.password_file and listener.certificate_file):
        yield (
            f"mqtt.listener.host = {listener.host!r} can be reached from other machines: set "
            "mqtt.listener.password_file and mqtt.listener.certificate_file, or host = '127.0.0.1'"
        )
    if any(character in listener.platform_prefix for character in "+#\0"):
        yield f"mqtt.listener.platform_prefix = {listener.platform_prefix!r} must have no +, # and NUL"
    if not (settings.routes or listener.platform_subscriptions or settings.broker.enabled):
        yield 'mqtt.listener needs a route: set [mqtt.routes], for example "#" = "platform"'


def _broken_in_broker(broker: BrokerSettings) -> Iterator[str]:
    try:
        parse_connect_points([broker.connect_point])
    except ValueError as error:
        yield f"mqtt.broker.connect_point: {error}"
    if broker.username and not broker.password_file:
        yield "mqtt.broker.username needs mqtt.broker.password_file"
    if broker.key_file and not broker.certificate_file:
        yield "mqtt.broker.key_file needs mqtt.broker.certificate_file"
    for topic_filter, target in broker.subscriptions.items():
        if not is_topic_filter(topic_filter) or topic_filter.startswith(SHARED_PREFIX):
            yield f"mqtt.broker.subscriptions: {topic_filter!r} is not a topic filter"
        if not target.startswith("@") or not target.strip("@"):
            yield f"mqtt.broker.subscriptions: {target!r}, for {topic_filter!r}, is not @ and a client id"
