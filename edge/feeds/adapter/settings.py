"""The settings of a feed adapter: one TOML file, in which an unknown key is an error (S2). `adapter.toml` explains each
key."""

import socket
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from edge.client.kafka_options import KafkaOptions
from edge.feeds.adapter.address import Address, parse_address
from edge.feeds.adapter.settings_rules import broken_rules
from feeds.counter import MINISEED
from feeds.line_mapping import Unit
from feeds.message import NUMBER_MAX
from feeds.synchronise import OnRefusal, SynchroniseSettings
from schemas.errors import SettingsError
from schemas.feed_words import Slot
from schemas.sections import Natural, NotEmpty, NotNegative, Positive, Seconds, Section
from schemas.settings_files import load_file, secret_if_set

EXAMPLE: Final = "adapter.toml"
FormatName = Literal["mode-s", "nmea0183", "nmea2000", "miniseed", "moldudp64", "csv", "json"]
FeedName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z", description="1 to 100 letters, digits, '.', '_' or '-'")
]
Name = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._:@-]{1,100}\Z", description="1 to 100 letters, digits, '.', '_', ':', '@' or '-'")
]


class FeedSection(Section, frozen=True):
    name: FeedName
    slot: Slot
    adapter: Name
    machine: Annotated[str, Meta(max_length=255)] = ""
    zone: Annotated[str, Meta(max_length=64)] = ""
    timeout_s: Seconds = 0.6
    mqtt: bool = False


class MappingSection(Section, frozen=True):
    stream: str = ""
    number: str = ""
    time: str = ""
    time_unit: Unit = "iso"
    counter_first: Natural = 0
    counter_last: Natural = 0


class CsvSection(Section, frozen=True):
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    skips_spaces: bool = False
    columns: list[NotEmpty] = msgspec.field(default_factory=list)
    encoding: NotEmpty = "utf-8"


class MiniSeedSection(Section, frozen=True):
    counter_first: Natural = MINISEED.first
    counter_last: Natural = MINISEED.last
    record_bytes: Natural = 0


class SourceSection(Section, frozen=True):
    format: FormatName
    name: NotEmpty
    address: NotEmpty = msgspec.field(name="from")
    epoch: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    sequencer: str = ""
    follow: bool = False
    rotate_wait_s: NotNegative = 0.0
    pace: NotNegative = 0.0
    request: str = ""
    needs_checksum: bool = True
    mapping: MappingSection = MappingSection()
    csv: CsvSection = CsvSection()
    miniseed: MiniSeedSection = MiniSeedSection()


class KafkaSection(Section, frozen=True):
    bootstrap: NotEmpty = "127.0.0.1:9092"
    prefix: str = "ws."
    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password_file: str = ""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    username: str = ""
    password_file: str = ""
    connect_timeout_s: Seconds = 10.0
    request_timeout_s: Seconds = 10.0
    reconnect_most_s: Seconds = 10.0


class LimitsSection(Section, frozen=True):
    buffer_messages: Positive = 20_000
    buffer_bytes: Positive = 64 << 20
    batch_messages: Positive = 2_000
    batch_bytes: Positive = 4 << 20
    message_bytes: Annotated[int, Meta(ge=128, le=900_000)] = 65_536
    streams: Positive = 10_000
    receive_buffer_bytes: Positive = 4 << 20
    reorder_messages: Positive = 10_000
    reorder_ms: Positive = 20
    request_ms: Positive = 50
    request_within_ms: Positive = 500
    requests_per_s: Positive = 100
    request_messages: Annotated[int, Meta(ge=1, le=65_534)] = 1_000
    reconnect_most_s: Seconds = 10.0
    unanswered_s: Seconds = 30.0
    log_records: Positive = 100_000
    stop_s: Seconds = 10.0


class AdministrationSection(Section, frozen=True):
    on_refusal: Literal["send", "put_off", "cancel"] = "send"
    put_off: Natural = 3
    threshold: Positive = 10_000
    open: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    payload_bytes: Annotated[int, Meta(ge=131_072)] = 64 << 20
    keep_s: Seconds = 60.0


class StateSection(Section, frozen=True):
    directory: NotEmpty = "adapter"
    every_s: Seconds = 1.0


class AdapterSettings(Section, frozen=True):
    feed: FeedSection
    source: SourceSection
    kafka: KafkaSection = KafkaSection()
    limits: LimitsSection = LimitsSection()
    administration: AdministrationSection = AdministrationSection()
    state: StateSection = StateSection()

    @property
    def address(self) -> Address:
        """Where the source is."""
        return parse_address(self.source.address)

    @property
    def machine(self) -> str:
        """Where this adapter runs."""
        return self.feed.machine or socket.gethostname()


def example() -> str:
    """The commented file that `waystation feed adapter --example` prints: every key, with its default."""
    return resources.files(__package__).joinpath(EXAMPLE).read_text(encoding="utf-8")


def load(path: Path) -> AdapterSettings:
    """The settings in a file; relative paths in it are relative to the file's directory. Raises SettingsError, with
    every unknown key and every value that is not allowed."""
    return _resolved(load_file(path, AdapterSettings, broken_rules), path.absolute().parent)


def kafka_options(kafka: KafkaSection, topic: str) -> KafkaOptions:
    """How brokers are reached. Raises SettingsError."""
    try:
        return KafkaOptions(
            topic=topic,
            tls=kafka.tls,
            ca_file=kafka.ca_file or None,
            certificate_file=kafka.certificate_file or None,
            key_file=kafka.key_file or None,
            key_password=secret_if_set("kafka.key_password_file", kafka.key_password_file),
            sasl_mechanism=kafka.sasl_mechanism or None,
            username=kafka.username or None,
            password=secret_if_set("kafka.password_file", kafka.password_file),
        )
    except ValueError as error:
        raise SettingsError(f"[kafka]: {error}") from error


def synchronise_settings(administration: AdministrationSection) -> SynchroniseSettings:
    """Those of the core."""
    return SynchroniseSettings(
        threshold=administration.threshold,
        on_refusal=OnRefusal(administration.on_refusal),
        put_off=administration.put_off,
        open_announcements=administration.open,
        answers=10 * administration.open,
        payload_bytes=administration.payload_bytes,
    )


def _resolved(settings: AdapterSettings, base: Path) -> AdapterSettings:
    replace, kafka, source = msgspec.structs.replace, settings.kafka, settings.source
    files = {name: getattr(kafka, name) for name in kafka.__struct_fields__ if name.endswith("_file")}
    address = settings.address
    if address.kind == "file":
        source = replace(source, address=f"file:{base / address.path}")
    return replace(
        settings,
        source=source,
        kafka=replace(kafka, **{name: str(base / file) if file else "" for name, file in files.items()}),
        state=replace(settings.state, directory=str(base / settings.state.directory)),
    )
