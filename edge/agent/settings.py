"""The agent's settings: one TOML file, in which an unknown key is an error (M19). `agent.toml` explains every key."""

import ssl
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from edge.agent.envelope import RECIPIENTS_MAX
from edge.agent.mqtt.settings import MqttSettings
from edge.agent.settings_rules import broken_rules
from edge.client.connect_points import Bearer
from edge.client.limits import Limits
from edge.client.store_clock import DOWN_MOST_S
from edge.node.settings import MeshSettings
from edge.uplink.settings import UplinkSettings
from schemas.errors import SettingsError
from schemas.sections import NotEmpty, Port, Positive, Seconds, Section
from schemas.settings_files import load_file

EXAMPLE: Final = "agent.toml"


class PlatformSettings(Section, frozen=True):
    access_points: list[str] = msgspec.field(default_factory=list)
    connect_points: list[str] = msgspec.field(default_factory=list)
    bearer: Bearer | Literal[""] = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    window_messages: Annotated[int, Meta(ge=1, le=1_000)] = 100
    connect_timeout_s: Seconds = 10.0
    keep_alive_s: Annotated[int, Meta(ge=1, le=65_535)] = 60
    ping_timeout_s: Seconds = 20.0
    reconnect_most_s: Seconds = 60.0

    @property
    def is_set(self) -> bool:
        """Whether there is anything to connect to."""
        return bool(self.access_points or self.connect_points)


class StoreSettings(Section, frozen=True):
    directory: NotEmpty = "agent"
    messages: Positive = 100_000
    total_bytes: Positive = 256 << 20
    message_bytes: Positive = 1_000_000
    lifetime_s: Seconds = 604_800.0
    down_most_s: Seconds = DOWN_MOST_S
    log_entries: Positive = 100_000


class SubmissionSettings(Section, frozen=True):
    enabled: bool = False
    host: NotEmpty = "127.0.0.1"
    port: Port = 2525
    hostname: str = ""
    message_bytes: Positive = 900_000
    line_bytes: Annotated[int, Meta(ge=1_001)] = 65_536
    recipients: Annotated[int, Meta(ge=1, le=RECIPIENTS_MAX)] = 100
    connections: Positive = 50
    timeout_s: Seconds = 300.0
    password_file: str = ""
    tls: Literal["starttls", "tls"] = "starttls"
    certificate_file: str = ""
    key_file: str = ""


class RelaySettings(Section, frozen=True):
    enabled: bool = False
    host: NotEmpty = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535)] = 25
    tls: Literal["no", "starttls", "tls"] = "no"
    ca_file: str = ""
    username: str = ""
    password_file: str = ""
    hostname: str = ""
    domains: list[NotEmpty] = msgspec.field(default_factory=list)
    doubtful: Literal["repeat", "hold"] = "repeat"
    connect_timeout_s: Seconds = 30.0
    command_timeout_s: Seconds = 300.0
    data_timeout_s: Seconds = 600.0
    retry_first_s: Seconds = 60.0
    retry_most_s: Seconds = 3_600.0
    lifetime_s: Seconds = 432_000.0
    messages: Positive = 10_000
    total_bytes: Positive = 256 << 20
    remembered: Positive = 1_000_000


class SmtpSettings(Section, frozen=True):
    routes: dict[str, NotEmpty] = msgspec.field(default_factory=dict)
    submission: SubmissionSettings = SubmissionSettings()
    relay: RelaySettings = RelaySettings()


class FoldersSettings(Section, frozen=True):
    enabled: bool = False
    outboxes: dict[str, NotEmpty] = msgspec.field(default_factory=dict)
    inbox: str = ""
    taken: Literal["remove", "keep"] = "remove"
    rescan_s: Seconds = 1.0
    remembered: Positive = 1_000_000


class MetricsSettings(Section, frozen=True):
    enabled: bool = False
    host: NotEmpty = "127.0.0.1"
    port: Port = 9464
    connections: Positive = 10
    timeout_s: Seconds = 10.0


class AgentSettings(Section, frozen=True):
    client_id: NotEmpty
    platform: PlatformSettings = PlatformSettings()
    store: StoreSettings = StoreSettings()
    smtp: SmtpSettings = SmtpSettings()
    folders: FoldersSettings = FoldersSettings()
    mqtt: MqttSettings = MqttSettings()
    mesh: MeshSettings = MeshSettings()
    uplink: UplinkSettings = UplinkSettings()
    metrics: MetricsSettings = MetricsSettings()


def example(client_id: str) -> str:
    """The commented file that `waystation agent init` writes: every key, with its default."""
    text = resources.files(__package__).joinpath(EXAMPLE).read_text(encoding="utf-8")
    return text.replace('"DEVICE"', msgspec.json.encode(client_id).decode())


def load(path: Path) -> AgentSettings:
    """The settings in a file; relative paths in it are relative to the file's directory.

    Raises SettingsError, with every unknown key and every value that is not allowed.
    """
    try:
        return _resolved(load_file(path, AgentSettings, broken_rules), path.absolute().parent)
    except SettingsError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        advice = "write one with `waystation agent init CLIENT-ID`, or name another one with --conf"
        raise SettingsError(f"{error}; {advice}") from error


def limits(settings: AgentSettings, window_messages: int | None = None) -> Limits:
    """The client library's limits. `window_messages` may be received and not be on disk here yet: the platform's unless
    given."""
    store, platform = settings.store, settings.platform
    return Limits(
        messages=store.messages,
        total_bytes=store.total_bytes,
        message_bytes=store.message_bytes,
        lifetime_s=store.lifetime_s,
        down_most_s=store.down_most_s,
        inbox_messages=window_messages or platform.window_messages,
        connect_timeout_s=platform.connect_timeout_s,
        ping_timeout_s=platform.ping_timeout_s,
    )


def client_tls(section: str, ca_file: str, certificate_file: str = "", key_file: str = "") -> ssl.SSLContext | None:
    """The context for connections that we open; None if no file is set. Raises SettingsError."""
    if not (ca_file or certificate_file):
        return None
    _check_readable(section, ca_file=ca_file, certificate_file=certificate_file, key_file=key_file)
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if certificate_file:
            context.load_cert_chain(certificate_file, key_file or None)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the TLS files of [{section}] cannot be used: {error}") from error
    return context


def server_tls(section: str, certificate_file: str, key_file: str) -> ssl.SSLContext | None:
    """The context of a listener; None without a certificate. Raises SettingsError."""
    if not certificate_file:
        return None
    _check_readable(section, certificate_file=certificate_file, key_file=key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate_file, key_file or None)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the TLS files of [{section}] cannot be used: {error}") from error
    return context


def _check_readable(section: str, **files: str) -> None:
    """Names the file that is missing, which the errors of `ssl` do not. Raises SettingsError."""
    for name, file in files.items():
        if not file:
            continue
        try:
            with open(file, "rb"):
                pass
        except OSError as error:
            raise SettingsError(f"{section}.{name} = {file!r} cannot be read: {error.strerror}") from error


def _resolved(settings: AgentSettings, base: Path) -> AgentSettings:
    def place(name: str) -> str:
        return str(base / name) if name else ""

    def files(section: Section) -> dict[str, str]:
        return {name: place(getattr(section, name)) for name in section.__struct_fields__ if name.endswith("_file")}

    replace = msgspec.structs.replace
    smtp, folders, mqtt = settings.smtp, settings.folders, settings.mqtt
    return replace(
        settings,
        platform=replace(settings.platform, **files(settings.platform)),
        store=replace(settings.store, directory=place(settings.store.directory)),
        smtp=replace(
            smtp,
            submission=replace(smtp.submission, **files(smtp.submission)),
            relay=replace(smtp.relay, **files(smtp.relay)),
        ),
        folders=replace(
            folders,
            outboxes={place(folder): topic for folder, topic in folders.outboxes.items()},
            inbox=place(folders.inbox),
        ),
        mqtt=replace(
            mqtt,
            listener=replace(mqtt.listener, **files(mqtt.listener)),
            broker=replace(mqtt.broker, **files(mqtt.broker)),
        ),
        uplink=replace(settings.uplink, **files(settings.uplink)),
    )
