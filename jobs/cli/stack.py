"""`up` and `down`: the local stack, in the foreground or in the background."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from edge.durable import NO_SPACE
from jobs.cli.context import Shared, shared
from jobs.errors import StackError
from jobs.output import Terminal, cell, output
from jobs.runtime.signals import set_on_signals
from jobs.stack import local
from jobs.stack.class_archive import KILL_TIMEOUT_S, make_archive_later
from jobs.stack.events import Died, Event, NotReplaced, NotWritten, Ready, Replaced, Stopped, WrittenAgain
from jobs.stack.gateways import MOST
from jobs.stack.local import Console, Plan
from jobs.stack.process import Identity
from jobs.stack.state import StackState, read_state, refuse_second, why_no_stack, written

POLL_S = 0.1
PART_INDENT = "  "


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)


def up(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run the stack in the background. Returns once everything is ready.")
    ] = False,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Pick free ports, and use the same ones for this data directory again.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Start only this part, and those that it needs; repeatable. `gateway` means all gateways.",
        ),
    ] = None,
    gateways: Annotated[
        int,
        typer.Option(
            min=1, max=MOST, help="How many gateways share the shards. All but the first listen on free ports."
        ),
    ] = 1,
) -> None:
    """Start the local stack: a Kafka broker, the Spark routers and ledger, and a gateway for MQTT and HTTP.

    The stack runs until Ctrl-C. It restarts parts that die. If `up` itself is killed, the next `up` stops what is left
    and starts again; nothing is lost.

        waystation up                                 MQTT on 127.0.0.1:1883
        waystation up --detach                        runs in the background until `waystation down`
        waystation --data /tmp/two up --free-ports    a second stack
        waystation up --only gateway                  no Spark: nothing is routed
        waystation up --gateways 3                    the others serve the clients of one that dies
    """
    options = shared(context)
    if detach:
        _up_detached(options, free_ports, only or [], gateways)
        return
    stopping = threading.Event()
    set_on_signals(stopping, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    terminal = output()
    parts = frozenset(only or ())
    plan = Plan(options.settings(), options.configuration, options.data(), free_ports, parts, gateways)
    terminal.print(f"starting the local stack in {plan.data}", markup=False)
    console, me = console_of(options), Identity.of(os.getpid())
    stop_timeout_s = plan.settings.stack.stop_timeout_s
    make_supervisor = partial(local.local_supervisor, plan, options.environ, console, me)
    archiving = threading.Thread(target=make_archive_later, args=(options.environ, stopping), daemon=True)
    archiving.start()
    try:
        local.run(plan.data, stop_timeout_s, make_supervisor, stopping, console)
    finally:
        stopping.set()
        archiving.join(KILL_TIMEOUT_S)
    terminal.print("stopped")


def down(context: typer.Context) -> None:
    """Stop the stack in this data directory and wait until it has stopped. Other stacks keep running.

    Example: `waystation --data /tmp/two down`
    """
    options = shared(context)
    terminal = output()
    stopped = local.stop(options.data(), options.settings().stack.stop_timeout_s)
    terminal.print("stopped" if stopped else f"nothing to stop: {why_no_stack(options.data())}", markup=False)


def console_of(options: Shared) -> Console:
    """The console of `up`. What it says on a full disk is not lost, and ends nothing."""

    def say(line: str) -> None:
        with _on_full_disk_later():
            output().print(line, markup=False)

    def on_ready(state: StackState, seconds: float) -> None:
        with _on_full_disk_later():
            terminal = output()
            terminal.print(f"ready in {seconds:.1f} s")
            _show_addresses(terminal, options, state)

    return Console(say=say, event=lambda event: say(_line(event)), ready=on_ready)


@contextmanager
def _on_full_disk_later() -> Iterator[None]:
    """Output that does not fit on the disk does not end the stack: standard output keeps it for the next time, as far
    as its buffer reaches. The console does not, so each time has its own."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


def _line(event: Event) -> str:
    match event:
        case Ready(part, seconds):
            return f"{PART_INDENT}{part:<14} ready after {seconds:.1f} s"
        case Died(part, why, pause_s):
            return f"{PART_INDENT}{part:<14} {why}; restarting in {pause_s:g} s"
        case Replaced(part, seconds):
            return f"{PART_INDENT}{part:<14} replaced: the new process caught up after {seconds:.1f} s"
        case NotReplaced(part, why):
            return f"{PART_INDENT}{part:<14} not replaced: {why}"
        case NotWritten(file, why):
            return f"{PART_INDENT}{file} cannot be written: {why}; the parts run on, and it is tried every second"
        case WrittenAgain(file):
            return f"{PART_INDENT}{file} can be written again"
        case Stopped(part, clean):
            return f"{PART_INDENT}{part:<14} {'stopped' if clean else 'did not stop in time and was killed'}"


def _show_addresses(terminal: Terminal, options: Shared, state: StackState) -> None:
    addresses = [(cell(name), cell(address)) for name, address in sorted(state.listeners.items())]
    terminal.show_table(("listener", "address"), addresses, title="listeners")
    host, _, port = state.listeners.get("mqtt", "").rpartition(":")
    where = f" --data {options.data_option}" if options.data_option else ""
    clients = (
        f"  mosquitto_sub -h {host} -p {port} -t 'greetings/#' -v",
        f"  mosquitto_pub -h {host} -p {port} -t greetings/world -m hello -q 1",
    )
    for line in (
        "Try:",
        *(clients if port else ()),
        f"  waystation{where} status",
        *([f"  waystation{where} gateways"] if len(state.gateways) > 1 else []),
        f"  waystation{where} query \"SELECT * FROM messages WHERE origin <> 'platform'\"",
        f"  waystation{where} down        (or Ctrl-C where `up` runs)",
    ):
        terminal.print(line, markup=False)


def _up_detached(options: Shared, free_ports: bool, only: Sequence[str], gateways: int) -> None:
    """Start `up` in the background, show its output until it is ready, and leave it running."""
    data = options.data()
    refuse_second(data)  # its log is that of the one that runs
    log = data / "logs" / "up.log"
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(data)]
    for overlay in options.overlays:
        command += ["--conf", str(overlay.absolute())]
    command += ["up", *(["--free-ports"] if free_ports else []), *(f"--only={part}" for part in only)]
    command.append(f"--gateways={gateways}")
    written(data, log).close()
    with log.open("ab") as appended:  # so that the log can be rotated
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=appended, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _follow(child, log, data)
    except KeyboardInterrupt:
        child.terminate()
        raise
    output().print(f"running in the background (pid {child.pid}); log: {log}", markup=False)


def _follow(child: "subprocess.Popen[bytes]", log: Path, data: Path) -> None:
    """Show the output of `up` until it is ready. Raises StackError with its last line if it ends instead.

    A line that is not about a part is held back until the next one, because it may be that last line.
    """
    terminal = output()
    held: list[str] = []
    with log.open() as read:
        while True:
            ended, ready = child.poll() is not None, _is_ready(data, child.pid)
            held += read.read().splitlines()
            keep = 0 if ready or not held or held[-1].startswith(PART_INDENT) else 1
            shown, held = held[: len(held) - keep], held[len(held) - keep :]
            for line in shown:
                terminal.print(line, markup=False)
            if ended:
                raise StackError(held[0] if held else f"`up` ended before everything was ready: read {log}")
            if ready:
                return
            time.sleep(POLL_S)


def _is_ready(data: Path, supervisor_pid: int) -> bool:
    state = read_state(data)
    return state is not None and state.ready and state.supervisor_pid == supervisor_pid
