"""Configuration: `conf/base.toml`, then an overlay such as `conf/local.toml`, then the environment, as frozen values.

An environment variable `WAYSTATION_<SECTION>__<KEY>` overrides one key: `WAYSTATION_GATEWAY__MQTT_PORT=1884` or, one
table deeper, `WAYSTATION_GATEWAY__LIMITS__QUEUE_MESSAGES=10`. `conf/base.toml` documents every key. Unknown keys and
wrong values raise one SettingsError, which names for each the file or variable, the key, the value, what is allowed,
and what was probably meant.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.access_settings import AuthenticationSettings, AuthorizationSettings, TlsSettings, check_access
from schemas.cluster_settings import ClusterSettings, check_cluster
from schemas.console_settings import ConsoleSettings
from schemas.enrolment_settings import EnrolmentSettings, check_enrolment
from schemas.errors import SettingsError
from schemas.feed_settings import FeedsSettings, GatewayFeedsSettings, check_feeds
from schemas.http_settings import HttpSettings, check_http
from schemas.maintain_settings import MaintainSettings, check_maintain
from schemas.member_settings import (
    AccessPointSettings,
    AdvertiseSettings,
    DispatcherSettings,
    GatewayClusterSettings,
    check_members,
)
from schemas.mesh_settings import MeshSettings, check_mesh
from schemas.policy_settings import PolicySettings
from schemas.presence_settings import PresenceSettings, check_presence
from schemas.quality_settings import QualitySettings
from schemas.sections import (
    ListenerPort,
    Memory,
    Natural,
    NotEmpty,
    NotNegative,
    Port,
    Positive,
    Seconds,
    Section,
)
from schemas.settings_files import Sources, read_secret
from schemas.share_settings import SharesSettings, check_shares
from schemas.storage_settings import StorageSettings, check_storage
from schemas.validation import convert, settings_error

DAY_S = 24 * 60 * 60

RESERVED_FILES = 500
"""Open files of a gateway besides its connections: Kafka, spool, listeners, scrapes, and connections that are being
refused."""

TopicPrefix = Annotated[
    str, Meta(pattern=r"^[a-z0-9._-]*\Z", description="letters a-z, digits, `.`, `_`, `-`, or empty")
]

GatewayName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z",
        description="1 to 200 letters a-z and A-Z, digits, `.`, `_`, `-`, the first one a letter or digit",
    ),
]
"""It names the directory of the spool's files: no other directory, and short enough for a file system."""


class KafkaSettings(Section, frozen=True, kw_only=True):
    bootstrap: str
    prefix: TopicPrefix
    ingress_partitions: Positive
    shards: Positive
    retention_days: Positive
    client: dict[str, str]
    password_file: str


class RouterSettings(Section, frozen=True, kw_only=True):
    batch_s: Annotated[float, Meta(ge=5)]
    route_lead_s: Seconds
    routes_refresh_s: Seconds
    standby_query: bool
    restart_backoff_s: Seconds
    metrics_host: str
    metrics_port: Port
    backup_metrics_port: Port


class LedgerSettings(Section, frozen=True, kw_only=True):
    trigger_s: Seconds
    completion_trigger_s: Seconds
    routes_trigger_s: Seconds
    message_window_days: Positive
    max_offsets_per_trigger: Positive
    tasks_per_batch: Positive
    batches_at_once: Positive
    feed_payloads: bool
    restart_backoff_s: Seconds
    metrics_host: str
    metrics_port: Port
    journeys: bool
    token_file: str


class GatewayLimits(Section, frozen=True, kw_only=True):
    packet_bytes: Annotated[int, Meta(ge=1024, le=16_777_216)]
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)]
    client_receive_maximum: Annotated[int, Meta(ge=1, le=65535)]
    topic_alias_maximum: Annotated[int, Meta(ge=0, le=65535)]
    client_topic_alias_maximum: Annotated[int, Meta(ge=0, le=65535)]
    subscriptions: Positive
    subscription_bytes: Annotated[int, Meta(ge=1024, le=900_000)]
    filter_levels: Annotated[int, Meta(ge=1, le=1000)]
    client_id_bytes: Annotated[int, Meta(ge=23, le=16_384)]
    will_bytes: Annotated[int, Meta(ge=0, le=262_144)]
    queue_messages: Positive
    queue_bytes: Positive
    queue_full: Literal["drop_newest", "drop_oldest", "disconnect"]
    retained_messages: Natural
    retained_bytes: Natural
    message_presences: Positive
    connections: Positive
    sessions: Positive
    share_in_flight: Annotated[int, Meta(ge=1, le=100_000)]
    session_expiry_s: Natural
    keep_alive_s: Annotated[int, Meta(ge=0, le=65535)]
    connect_timeout_s: Seconds
    in_flight_messages: Positive
    client_in_flight_messages: Positive
    in_flight_bytes: Positive
    held_back_messages: Positive
    held_back_bytes: Positive
    unspooled_messages: Positive
    unspooled_bytes: Positive
    write_buffer_bytes: Positive
    websocket_frame_bytes: Annotated[int, Meta(ge=1024, le=67_108_864)]
    quic_window_bytes: Annotated[int, Meta(ge=16_384, le=67_108_864)]
    quic_handshakes: Positive
    quic_idle_timeout_s: Annotated[float, Meta(ge=1, le=86_400)]

    @property
    def open_files(self) -> int:
        """How many open files the gateway's process needs for this many connections."""
        return self.connections + RESERVED_FILES


class GatewaySettings(Section, frozen=True, kw_only=True):
    name: GatewayName
    host: str
    mqtt_port: ListenerPort
    websocket_port: ListenerPort
    websocket_path: Annotated[
        str,
        Meta(
            pattern=r"^(/[^?#\s]*)?\Z",
            description='a path, such as "/mqtt", without ?, # and spaces; empty: any path',
        ),
    ]
    websocket_origins: list[str]
    proxy_protocol: bool
    trusted_proxies: list[str]
    response_prefix: Annotated[
        str,
        Meta(
            pattern=r"^(?![$@])[^#+\0]*\Z",
            max_length=1024,
            description="the beginning of a topic without + and #, not starting with $ or @, at most 1024 characters",
        ),
    ]
    http_port: ListenerPort
    metrics_port: Port
    checkpoint_s: Seconds
    spool_after_s: Seconds
    admin_token_file: str
    sys_interval_s: NotNegative
    connection_log: Literal["debug", "info"]
    limits: GatewayLimits
    http: HttpSettings
    tls: TlsSettings
    authentication: AuthenticationSettings
    authorization: AuthorizationSettings
    policy: PolicySettings
    cluster: GatewayClusterSettings
    dispatcher: DispatcherSettings
    access_point: AccessPointSettings
    advertise: AdvertiseSettings
    mesh: MeshSettings
    enrolment: EnrolmentSettings
    console: ConsoleSettings
    feeds: GatewayFeedsSettings
    shares: SharesSettings


class StackSettings(Section, frozen=True, kw_only=True):
    broker_port: Port
    broker_heap: Memory
    router_heap: Memory
    ledger_heap: Memory
    broker_java_options: str
    router_java_options: str
    ledger_java_options: str
    ledger_niceness: Annotated[int, Meta(ge=0, le=19)]
    router_processes: Annotated[int, Meta(ge=1, le=2)]
    router_start_niceness: Annotated[int, Meta(ge=0, le=19)]
    router_replace_niceness: Annotated[int, Meta(ge=0, le=20)]
    router_settle_s: NotNegative
    start_timeout_s: Seconds
    stop_timeout_s: Seconds
    restart_backoff_s: Seconds
    log_bytes: Annotated[int, Meta(ge=65536)]
    log_files: Annotated[int, Meta(ge=0, le=100)]


class AuditSettings(Section, frozen=True, kw_only=True):
    patience_s: Seconds
    heap: Memory


class ReportSettings(Section, frozen=True, kw_only=True):
    memory_mb: Annotated[int, Meta(ge=64)]
    top: Annotated[int, Meta(ge=1, le=1000)]


class LogSettings(Section, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["json", "text"]
    slow_batch_triggers: Annotated[float, Meta(ge=1)]
    lag_records: Positive
    progress_every_s: Annotated[float, Meta(ge=0)]


class Settings(Section, frozen=True, kw_only=True):
    """Everything that can be configured; `data` is the directory of tables, checkpoints, spools and logs."""

    data: NotEmpty
    storage: StorageSettings
    kafka: KafkaSettings
    router: RouterSettings
    ledger: LedgerSettings
    presence: PresenceSettings
    gateway: GatewaySettings
    feeds: FeedsSettings
    quality: QualitySettings
    maintain: MaintainSettings
    stack: StackSettings
    cluster: ClusterSettings
    audit: AuditSettings
    report: ReportSettings
    log: LogSettings

    @property
    def tables(self) -> str:
        """The location of the Delta tables: a directory or an object store's URI."""
        return self.storage.tables.rstrip("/") or f"{self.data}/tables"


def load_settings(paths: list[Path], environment: Mapping[str, str]) -> Settings:
    """Settings from `paths`, later files overriding earlier ones, and `environment` overriding all.

    Raises SettingsError for a file that is missing or not TOML; for all unknown keys and values that are not allowed,
    each with its file or environment variable; and for values that do not fit together.
    """
    sources = Sources(Settings)
    for path in paths:
        sources.add_file(path)
    sources.add_environment(environment)
    settings = convert(sources.table, Settings)
    if isinstance(settings, list):
        raise settings_error(sources.sentences(settings))
    broken = [sources.with_origins(sentence) for sentence in _broken_rules(settings)]
    if sources.problems or broken:
        raise settings_error([*sources.problems, *broken])
    return settings


def process_settings(environment: Mapping[str, str]) -> Settings:
    """The settings of this process, from its environment alone; a supervisor passes settings to its children in this
    way.

    `WAYSTATION_CONF` names the files, separated by `os.pathsep` (default: `conf/base.toml` as installed);
    `WAYSTATION_DATA` overrides `data`; `WAYSTATION_<TABLE>__<KEY>` any other key. Raises SettingsError.
    """
    named = environment.get("WAYSTATION_CONF", "")
    paths = [Path(name) for name in named.split(os.pathsep) if name]
    loaded = load_settings(paths or [Path(str(resources.files("conf") / "base.toml"))], environment)
    settings = with_secrets(loaded)
    data = environment.get("WAYSTATION_DATA")
    return msgspec.structs.replace(settings, data=data) if data else settings


def with_secrets(settings: Settings) -> Settings:
    """The settings with the password of Kafka's clients, if a file holds it. Raises SettingsError."""
    kafka = settings.kafka
    if not kafka.password_file:
        return settings
    password = read_secret("kafka.password_file", kafka.password_file)
    client = kafka.client | {"sasl.password": password}
    return msgspec.structs.replace(settings, kafka=msgspec.structs.replace(kafka, client=client))


def _broken_rules(settings: Settings) -> Iterator[str]:
    """For each group of rules between keys, the first broken one."""
    gateway, kafka = settings.gateway, settings.kafka
    checks: tuple[Callable[[], None], ...] = (
        lambda: _check_times(settings),
        lambda: check_presence(settings.presence),
        lambda: check_maintain(settings.maintain, settings.ledger.message_window_days),
        lambda: _check_bearers(gateway),
        lambda: check_members(gateway.host, gateway.cluster, gateway.advertise),
        lambda: check_mesh(gateway.mesh, gateway.limits.packet_bytes),
        lambda: check_http(gateway.http, gateway.limits.packet_bytes, gateway.mesh),
        lambda: check_enrolment(gateway.enrolment),
        lambda: check_feeds(settings.feeds, gateway.feeds),
        lambda: check_shares(gateway.shares),
        lambda: check_access(gateway.host, gateway.tls, gateway.authentication),
        lambda: check_storage(settings.storage),
        lambda: _check_password(kafka),
        lambda: check_cluster(
            settings.cluster, kafka.ingress_partitions, settings.router.standby_query, kafka.bootstrap, settings.tables
        ),
    )
    for check in checks:
        try:
            check()
        except SettingsError as error:
            yield str(error)


def _check_times(settings: Settings) -> None:
    router, lead = settings.router, settings.router.route_lead_s
    least = router.batch_s + router.routes_refresh_s + settings.ledger.routes_trigger_s
    if lead < least:
        raise SettingsError(
            f"router.route_lead_s = {lead:g} is too short: every router must have loaded a route before it takes "
            f"effect; allowed: at least router.batch_s + router.routes_refresh_s + ledger.routes_trigger_s = {least:g}"
        )
    if lead * 1000 != int(lead * 1000):
        raise SettingsError(f"router.route_lead_s = {lead} is not allowed: expected whole milliseconds")
    window_days, kept_days = settings.ledger.message_window_days, settings.kafka.retention_days
    if window_days < kept_days:
        raise SettingsError(
            f"ledger.message_window_days = {window_days} is too short: copies of a message can arrive as long as "
            f"topics are kept; allowed: at least kafka.retention_days = {kept_days}"
        )
    expiry_s = settings.gateway.limits.session_expiry_s
    if expiry_s > window_days * DAY_S:
        raise SettingsError(
            f"gateway.limits.session_expiry_s = {expiry_s} is too long: a message delivered after the message "
            f"window is never completed; allowed: at most ledger.message_window_days = {window_days * DAY_S} s"
        )


def _check_password(kafka: KafkaSettings) -> None:
    if kafka.password_file and "sasl.password" in kafka.client:
        raise SettingsError("kafka.password_file and sasl.password in kafka.client are both set: remove one of them")


def _check_bearers(gateway: GatewaySettings) -> None:
    limits = gateway.limits
    if limits.websocket_frame_bytes < limits.packet_bytes:
        raise SettingsError(
            f"gateway.limits.websocket_frame_bytes = {limits.websocket_frame_bytes} is too small: a frame must "
            f"hold a packet; allowed: at least gateway.limits.packet_bytes = {limits.packet_bytes}"
        )
    for network in gateway.trusted_proxies:
        try:
            ip_network(network)
        except ValueError as error:
            raise SettingsError(
                f"gateway.trusted_proxies: {network!r} is not a network: {error}; write 10.0.0.0/8 or 10.1.2.3"
            ) from error
    if gateway.proxy_protocol and not gateway.trusted_proxies:
        raise SettingsError(
            "gateway.proxy_protocol = true needs gateway.trusted_proxies: list the networks of the proxies that are "
            "trusted"
        )
