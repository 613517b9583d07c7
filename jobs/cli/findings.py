"""The checks of `doctor`: one function per subject, each saying what is used and how to fix what does not work."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.errors import TopicsError
from jobs.stack import jars
from jobs.stack.class_archive import class_archive
from jobs.stack.java import find_java
from jobs.stack.parts import BROKER_HOST
from jobs.stack.ports import why_not
from jobs.stack.state import read_state
from jobs.stack.topics import admin_client
from schemas.errors import WaystationError
from schemas.settings import GatewayLimits, KafkaSettings, Settings
from schemas.settings_files import ENVIRONMENT_PREFIX

NEEDED_MEMORY_GB = 4.0
NEEDED_DISK_GB = 5.0
GIGABYTE = 1_000_000_000
_UDP_PORT = "gateway.tls.quic_port"


class Finding(NamedTuple):
    """`found`: what is used. A problem has a `remedy`; a `warning` is for what works but is probably unintended."""

    subject: str
    found: str
    remedy: str | None = None
    warning: str | None = None

    @property
    def level(self) -> str:
        """`ok`, `warning` or `problem`."""
        return "problem" if self.remedy else "warning" if self.warning else "ok"


def python(version: tuple[int, ...]) -> Finding:
    remedy = None if version >= (3, 11) else "install Python 3.11 or newer, remove .venv, and run `make env`"
    return Finding("Python", f"{platform.python_version()}, {sys.executable}", remedy)


def java(environ: Mapping[str, str]) -> Finding:
    try:
        found = find_java(environ)
    except WaystationError as error:
        return _of_error("Java", error)
    if found.warning is None:
        return Finding("Java", str(found))
    return Finding("Java", f"{found}; {found.warning}", warning="set JAVA_HOME to a full JDK 17 or 21, or unset it")


def cache(directory: Path, environ: Mapping[str, str]) -> Finding:
    """The directory of the JVM libraries, and which setting chose it."""
    chosen = "WAYSTATION_CACHE" if environ.get("WAYSTATION_CACHE") else "default"
    remedy = None if _writable(directory) else "make it writable, or name another directory in WAYSTATION_CACHE"
    return Finding("cache", f"{directory} ({chosen})", remedy)


def jvm_libraries(environ: Mapping[str, str]) -> Finding:
    try:
        count = len(jars.spark_jars(environ))
    except WaystationError as error:
        return _of_error("JVM libraries", error)
    return Finding("JVM libraries", f"resolved in {jars.jars_directory(environ)} ({count} for Spark)")


def class_archive_of(environ: Mapping[str, str]) -> Finding:
    """A missing archive is no problem: the stack creates it, and works without."""
    try:
        archive = class_archive(find_java(environ).home, environ)
    except WaystationError:
        return Finding("class archive", "needs Java")
    later = "none yet; a stack that has run for five minutes creates it, and Spark then starts faster"
    return Finding("class archive", str(archive) if os.path.isfile(archive) else later)


def memory(available_gb: float) -> Finding:
    remedy = None
    if available_gb < NEEDED_MEMORY_GB:
        remedy = f"the stack needs up to {NEEDED_MEMORY_GB:g} GB: close other programs, or lower stack.*_heap"
    return Finding("memory", f"{available_gb:.1f} GB available", remedy)


def configuration(files: Sequence[Path], environ: Mapping[str, str]) -> Finding:
    """Which files count, later ones overriding earlier ones, and which variables override them; never a value."""
    variables = sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and "__" in name)
    over = f"; overridden by {', '.join(variables)}" if variables else ""
    return Finding("configuration", f"{', '.join(map(str, files))}{over}")


def kafka_client(kafka: KafkaSettings) -> Finding:
    """Whether Kafka's client takes its settings; no broker is asked."""
    try:
        admin_client(kafka.bootstrap, kafka.client)
    except TopicsError as error:
        found, _, remedy = str(error).partition("; ")
        return Finding("configuration", found, remedy)
    return Finding("configuration", f"kafka.client has {len(kafka.client)} settings")


def named_files(settings: Settings) -> Iterator[Finding]:
    """The files named in the configuration with which the gateway would not start."""
    gateway = settings.gateway
    named = {
        "gateway.tls.certificate": gateway.tls.certificate,
        "gateway.tls.key": gateway.tls.key,
        "gateway.tls.client_ca": gateway.tls.client_ca,
        "gateway.authentication.password.file": gateway.authentication.password.file,
        "gateway.authentication.jwt.keys": gateway.authentication.jwt.keys,
        "gateway.authorization.file": gateway.authorization.file,
        "gateway.admin_token_file": gateway.admin_token_file,
        "storage.secret_file": settings.storage.secret_file,
    }
    for key, file in named.items():
        if not file:
            continue
        try:
            with open(file, "rb"):
                pass
        except OSError as error:
            found = f"cannot read {key} = {Path(file).absolute()}: {error.strerror}"
            yield Finding("files", found, "create the file, make it readable for this user, or correct the key")


def open_files(limits: GatewayLimits, hard: int) -> Finding:
    """Whether the gateway may open as many files as its connections need; `hard` is the limit up to which it may raise
    its own."""
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", "no limit")
    found = f"limit {hard}; gateway.limits.connections = {limits.connections} needs {limits.open_files}"
    remedy = None
    if hard < limits.open_files:
        remedy = (
            f"raise the hard limit to {limits.open_files} (`ulimit -Hn` as root, /etc/security/limits.conf, or "
            "LimitNOFILE= of systemd), or lower gateway.limits.connections"
        )
    return Finding("open files", found, remedy)


def data_directory(data: Path, chosen_by: str) -> list[Finding]:
    """Free space in the data directory, and permissions for it."""
    existing = _existing(data)
    if not existing.is_dir():
        found = f"{data} ({chosen_by}): {existing} is not a directory"
        return [Finding("data", found, "name another directory with --data")]
    free_gb = shutil.disk_usage(existing).free / GIGABYTE
    remedy = None
    if free_gb < NEEDED_DISK_GB:
        remedy = f"free some space, or use --data with a directory that has {NEEDED_DISK_GB:g} GB free"
    findings = [Finding("data", f"{data} ({chosen_by}), {free_gb:.1f} GB free", remedy)]
    if not _writable(existing):
        remedy = "make it writable, or name another directory with --data"
        findings.append(Finding("data", f"{existing} is not writable", remedy))
    return findings


def ports(settings: Settings, data: Path) -> list[Finding]:
    """Whether each configured port is free, and belongs to only one listener."""
    state = read_state(data)
    if state and state.supervisor.alive():
        return [Finding("ports", f"in use by the stack that runs in {data}")]
    gateway, router, stack = settings.gateway, settings.router, settings.stack
    wanted = (
        ("gateway.mqtt_port", gateway.host, gateway.mqtt_port),
        ("gateway.websocket_port", gateway.host, gateway.websocket_port),
        ("gateway.http_port", gateway.host, gateway.http_port),
        ("gateway.tls.mqtts_port", gateway.host, gateway.tls.mqtts_port),
        ("gateway.tls.wss_port", gateway.host, gateway.tls.wss_port),
        ("gateway.tls.https_port", gateway.host, gateway.tls.https_port),
        (_UDP_PORT, gateway.host, gateway.tls.quic_port),
        ("gateway.metrics_port", gateway.host, gateway.metrics_port),
        ("router.metrics_port", router.metrics_host, router.metrics_port),
        *[("router.backup_metrics_port", router.metrics_host, router.backup_metrics_port)][
            : stack.router_processes - 1
        ],
        ("ledger.metrics_port", settings.ledger.metrics_host, settings.ledger.metrics_port),
        ("stack.broker_port", BROKER_HOST, stack.broker_port),
    )
    used: dict[tuple[int, bool], str] = {}
    findings = []
    for key, host, port in wanted:
        if isinstance(port, int):
            udp = key == _UDP_PORT
            findings.append(_port(key, host, port, used.get((port, udp)), udp))
            used.setdefault((port, udp), key)
    return findings


def _port(key: str, host: str, port: int, other: str | None, udp: bool) -> Finding:
    if port == 0:
        return Finding("ports", f"{key}: a free port will be picked")
    if other is not None:
        return Finding("ports", f"{key} and {other} are both {port}", "change one of them")
    why = why_not(host, port, udp=udp)
    if why is None:
        return Finding("ports", f"{key} {port} on {host} is free")
    remedy = "stop the program that uses it, choose another port, or use `waystation up --free-ports`"
    return Finding("ports", f"{key} {port} on {host} {why}", remedy)


def _of_error(subject: str, error: WaystationError) -> Finding:
    """Splits an error at the colon that precedes what to do."""
    found, _, remedy = str(error).rpartition(": ")
    return Finding(subject, found, remedy)


def _existing(path: Path) -> Path:
    """The path, or the first of its parents that this user can see (`Path.exists` would raise PermissionError)."""
    return next(parent for parent in (path, *path.parents) if os.path.exists(parent))


def _writable(path: Path) -> bool:
    return os.access(_existing(path), os.W_OK)
