"""`submit`: the Spark applications on a cluster."""

import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import msgspec
import typer

from jobs.cli.context import OVERLAYS, shared
from jobs.cluster import drivers
from jobs.cluster.applications import NAMES, ROLES, applications
from jobs.cluster.bundle import make_bundle
from jobs.cluster.submission import Tools, submission
from jobs.errors import SubmissionError
from jobs.output import errors, output
from jobs.runtime.signals import set_on_signals
from jobs.stack.jars import cache_directory, pyspark_jars, resolve_for, say, spark_jars, store_jars
from jobs.stack.java import find_java
from schemas.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command()(submit)


def submit(
    context: typer.Context,
    application: Annotated[str, typer.Argument(help=f"Application: {', '.join(NAMES)}.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENT]...", help="Arguments for the application.")
    ] = None,
    conf: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file that overrides conf/base.toml, like the global --conf. May be repeated."),
    ] = None,
    role: Annotated[
        str | None, typer.Option(help=f"Router role: {' or '.join(ROLES)}. Default: both, as two applications.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the files and the command, with secrets masked, without submitting.")
    ] = False,
) -> None:
    """Run a Spark application on a cluster: standalone, YARN or Kubernetes. The section [cluster] of the configuration
    describes the cluster.

    In deploy mode "client" the drivers run on this machine. The command waits until they end; SIGTERM or Ctrl-C stops
    them in an orderly way. In deploy mode "cluster" the drivers run on the cluster. The command waits for them, but
    they keep running if it is stopped.

    The command reads conf/base.toml and all --conf files, but not conf/local.toml.

    Examples:

        waystation submit router --conf conf/cluster.toml --dry-run
        waystation submit router --role active --conf conf/cluster.toml
        waystation submit ledger --conf conf/cluster.toml
    """
    chosen = applications(application, role, tuple(arguments or ()))  # first: other errors would hide a misspelt name
    everywhere = shared(context).configuration
    # Of the installed files only base.toml, because local.toml is for the local stack; then all files given.
    files = [everywhere[0], *everywhere[len(OVERLAYS) :], *(path.absolute() for path in conf or [])]
    environ = shared(context).environ
    settings = load_settings(files, environ)
    cluster = settings.cluster
    if not cluster.kind:
        raise SubmissionError(
            "cluster.master is empty: set it in a file such as conf/cluster.toml, and pass the file with --conf"
        )
    if cluster.kind == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise SubmissionError(
            "HADOOP_CONF_DIR is not set: set it to the directory with yarn-site.xml and core-site.xml"
        )
    data = str(shared(context).data_option or environ.get("WAYSTATION_DATA") or settings.data)
    if cluster.deploy_mode == "client":
        data = os.path.abspath(data)
    settings = msgspec.structs.replace(settings, data=data)
    jars: list[Path] = []
    if not cluster.in_pods:
        resolve_for(settings.storage.kind, environ, say)
        jars = spark_jars(environ) + store_jars(settings.storage.kind, environ)
    java = find_java(environ)
    if java.warning:
        say(f"using Java {java}; {java.warning}")
    tools = Tools(pyspark_jars().parent, java.home, sys.executable, jars)
    bundle = make_bundle(files, cache_directory(environ))
    submissions = [submission(each, settings, bundle, tools, environ) for each in chosen]
    if dry_run:
        for number, each in enumerate(submissions):
            output().print(("\n" if number else "") + "\n".join(each.shown()))
        return
    stopped = Event()
    set_on_signals(stopped, signal.SIGTERM, signal.SIGINT)
    drivers.run(submissions, stopped, settings.stack.stop_timeout_s, errors().print)
