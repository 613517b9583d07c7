"""`doctor`: whether this machine can run the stack, and how to fix what is missing."""

import resource
import sys

import psutil
import typer

from jobs.cli.context import Shared, output, shared
from jobs.cli.findings import (
    GIGABYTE,
    Finding,
    cache,
    class_archive_of,
    configuration,
    data_directory,
    java,
    jvm_libraries,
    kafka_client,
    memory,
    named_files,
    open_files,
    ports,
    python,
)
from jobs.stack.jars import cache_directory
from jobs.stack.memory_limit import available_bytes
from schemas.errors import WaystationError

STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(context: typer.Context) -> None:
    """Check what the stack needs: Python, Java, JVM libraries, memory, configuration, files, disk, ports.

    Shows what will be used, and how to fix each problem. The exit status is 1 if there is a problem, 0 if there are
    only warnings.
    """
    terminal = output()
    findings = examine(shared(context))
    for finding in findings:
        terminal.print(f"{finding.level:<7}", style=STYLES[finding.level], end="")
        terminal.print(f"  {finding.subject:<14}", end="")
        terminal.print(finding.found, markup=False)
        for hint in filter(None, (finding.remedy, finding.warning)):
            terminal.print(f"         {'':<14}Fix: {hint}", markup=False)
    if any(finding.remedy for finding in findings):
        raise typer.Exit(1)


def examine(options: Shared) -> list[Finding]:
    """All findings, in the order in which to fix them."""
    environ = options.environ
    findings = [
        python(sys.version_info[:2]),
        java(environ),
        cache(cache_directory(environ), environ),
        jvm_libraries(environ),
        class_archive_of(environ),
        memory(available_bytes(psutil.virtual_memory().available) / GIGABYTE),
    ]
    try:
        settings, data = options.settings(), options.data()
    except WaystationError as error:
        return [
            *findings,
            Finding("configuration", str(error), "correct the setting; conf/base.toml explains every key"),
        ]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        *findings,
        configuration(options.configuration, environ),
        kafka_client(settings.kafka),
        *named_files(settings),
        *data_directory(data, options.data_from()),
        open_files(settings.gateway.limits, hard),
        *ports(settings, data),
    ]
