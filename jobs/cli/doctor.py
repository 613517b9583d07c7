"""`doctor`: whether this machine can run the stack, and how to mend what is missing."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
import typer

from jobs.cli.context import Shared, output, shared
from jobs.stack import jars
from jobs.stack.class_archive import class_archive
from jobs.stack.java import find_java
from jobs.stack.parts import BROKER_HOST
from jobs.stack.ports import is_free
from jobs.stack.state import read_state
from schemas.errors import WaystationError
from schemas.settings import GatewayLimits, Settings

NEEDED_MEMORY_GB = 4.0
NEEDED_DISK_GB = 5.0
GIGABYTE = 1_000_000_000


class Finding(NamedTuple):
    """`remedy` is None if all is well."""

    subject: str
    found: str
    remedy: str | None = None


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(context: typer.Context) -> None:
    """Look at what the stack needs: Java, Python, memory, open files, ports, disk, JVM libraries, configuration.

    Says for each whether it will do, and if not, how to mend it; then the exit status is 1.
    """
    terminal = output()
    findings = examine(shared(context))
    for finding in findings:
        verdict = "[green]ok     [/green]" if finding.remedy is None else "[red]problem[/red]"
        terminal.print(f"{verdict}  {finding.subject:<14}", end="")
        terminal.print(finding.found, markup=False)
        if finding.remedy:
            terminal.print(f"         {'':<14}to mend it: {finding.remedy}", markup=False)
    if any(finding.remedy for finding in findings):
        raise typer.Exit(1)


def examine(options: Shared) -> list[Finding]:
    """All findings, in the order in which to mend them."""
    findings = [
        _python(sys.version_info[:2]),
        _java(options.environ),
        _jars(options.environ),
        _class_archive(options.environ),
        _memory(psutil.virtual_memory().available / GIGABYTE),
    ]
    try:
        settings, data = options.settings(), options.data()
    except WaystationError as error:
        return [*findings, Finding("configuration", str(error), "correct it; conf/base.toml explains every key")]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = open_files(settings.gateway.limits, hard)
    return [*findings, Finding("configuration", "read"), *_data(data), files, *_ports(settings, data)]


def _python(version: tuple[int, ...]) -> Finding:
    remedy = None if version >= (3, 11) else "install Python 3.11 or newer, remove .venv, and run `make env`"
    return Finding("Python", platform.python_version(), remedy)


def _java(environ: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environ)
    except WaystationError as error:
        found, _, remedy = str(error).rpartition(": ")
        return Finding("Java", found, remedy)
    return Finding("Java", f"{java.version} in {java.home}")


def _jars(environ: Mapping[str, str]) -> Finding:
    try:
        count = len(jars.spark_jars(environ))
    except WaystationError as error:
        found, _, remedy = str(error).rpartition(": ")
        return Finding("JVM libraries", found, remedy)
    return Finding("JVM libraries", f"resolved in {jars.jars_directory(environ)} ({count} for Spark)")


def _class_archive(environ: Mapping[str, str]) -> Finding:
    """It is no fault if there is none: the stack makes it, and does without."""
    try:
        archive = class_archive(find_java(environ).home, environ)
    except WaystationError:
        return Finding("class archive", "needs Java")
    return Finding("class archive", str(archive) if archive.is_file() else "not made yet; Spark starts sooner with it")


def _memory(available_gb: float) -> Finding:
    remedy = None
    if available_gb < NEEDED_MEMORY_GB:
        remedy = f"the stack takes up to {NEEDED_MEMORY_GB:g} GB: close other programs, or lower stack.*_heap"
    return Finding("memory", f"{available_gb:.1f} GB available", remedy)


def open_files(limits: GatewayLimits, hard: int) -> Finding:
    """Whether the gateway may open as many files as its connections need; `hard` is the limit up to which it may raise
    its own."""
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", "no limit")
    found = f"up to {hard} for a process; gateway.limits.connections {limits.connections} needs {limits.open_files}"
    remedy = None
    if hard < limits.open_files:
        remedy = (
            f"raise the hard limit to {limits.open_files} (`ulimit -Hn` as root, /etc/security/limits.conf, or "
            "LimitNOFILE= of systemd), or lower gateway.limits.connections"
        )
    return Finding("open files", found, remedy)


def _data(data: Path) -> list[Finding]:
    existing = next(path for path in (data, *data.parents) if path.exists())
    free_gb = shutil.disk_usage(existing).free / GIGABYTE
    remedy = None
    if free_gb < NEEDED_DISK_GB:
        remedy = f"make room, or name a directory with {NEEDED_DISK_GB:g} GB free with --data"
    findings = [Finding("disk", f"{free_gb:.1f} GB free for {data}", remedy)]
    if not os.access(existing, os.W_OK):
        findings.append(Finding("disk", f"{existing} cannot be written", "name another directory with --data"))
    return findings


def _ports(settings: Settings, data: Path) -> list[Finding]:
    state = read_state(data)
    if state and state.supervisor.alive():
        return [Finding("ports", f"in use by the stack that runs over {data}")]
    gateway, router, stack = settings.gateway, settings.router, settings.stack
    wanted = (
        ("gateway.mqtt_port", gateway.host, gateway.mqtt_port),
        ("gateway.websocket_port", gateway.host, gateway.websocket_port),
        ("gateway.http_port", gateway.host, gateway.http_port),
        ("gateway.tls.mqtts_port", gateway.host, gateway.tls.mqtts_port),
        ("gateway.tls.wss_port", gateway.host, gateway.tls.wss_port),
        ("gateway.tls.https_port", gateway.host, gateway.tls.https_port),
        ("gateway.metrics_port", gateway.host, gateway.metrics_port),
        ("router.metrics_port", router.metrics_host, router.metrics_port),
        *[("router.backup_metrics_port", router.metrics_host, router.backup_metrics_port)][
            : stack.router_processes - 1
        ],
        ("ledger.metrics_port", settings.ledger.metrics_host, settings.ledger.metrics_port),
        ("stack.broker_port", BROKER_HOST, stack.broker_port),
    )
    return [_port(key, host, port, is_free) for key, host, port in wanted if isinstance(port, int)]


def _port(key: str, host: str, port: int, free: Callable[[str, int], bool]) -> Finding:
    if port == 0:
        return Finding("ports", f"{key}: a free one will be picked")
    if free(host, port):
        return Finding("ports", f"{key} {port} is free")
    remedy = "stop the program that has it, choose another port, or use `waystation up --free-ports`"
    return Finding("ports", f"{key} {port} is taken", remedy)
