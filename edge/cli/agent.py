"""`waystation agent …`: the agent in the foreground, and questions to the running one (M20)."""

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from schemas.errors import SettingsError
from schemas.visible import visible

ConfOption = Annotated[
    Path, typer.Option("--conf", envvar="WAYSTATION_AGENT", help="The agent's settings, a TOML file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT: Final = Path("agent.toml")
POLL_S: Final = 0.2
"""Between two questions about a message that is waited for."""


def commands() -> typer.Typer:
    """The group `agent`."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback()(agent)
    for command in (init, enrol, up, status, peers, log, trace, send, discard):
        app.command()(command)
    return app


def agent() -> None:
    """The agent: stands in for the mail server and the MQTT broker of programs on this machine, and takes files from
    folders. It keeps what it has accepted on disk. It hands it to the platform, or to agents near by, as soon as it
    reaches them.

        waystation agent init van-7        writes agent.toml, with every setting
        waystation agent enrol --token -   makes the device a member of a mesh
        waystation agent up                runs the agent until Ctrl-C
        waystation agent status
    """


def init(
    client_id: Annotated[str, typer.Argument(help="The agent's name on the platform.")],
    conf: ConfOption = DEFAULT,
) -> None:
    """Write the settings file with every key, its default and what it means. A file that exists is not changed."""
    from edge.agent.settings import example

    text = example(client_id)
    try:
        descriptor = os.open(conf, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise SettingsError(f"{conf} exists and is not changed: give another name with --conf") from error
    except OSError as error:
        raise SettingsError(f"{conf} cannot be written: {error.strerror}") from error
    with open(descriptor, "w", encoding="utf-8") as output:
        output.write(text)
    typer.echo(f"wrote {conf}: set where gateways are and turn on what you need, then run `waystation agent up`")


def enrol(
    token: Annotated[
        str,
        typer.Option(
            envvar="WAYSTATION_ENROLMENT_TOKEN",
            help="What `waystation ca token` printed; - reads it from the standard input.",
        ),
    ],
    gateway: Annotated[
        list[str] | None,
        typer.Option(help="URL of a gateway; may be repeated. Default: platform.access_points of the settings."),
    ] = None,
    conf: ConfOption = DEFAULT,
) -> None:
    """Get a certificate from a gateway, so that this device can be a member of a mesh. Its keys are made here, and
    stored with the certificate in `identity` in the agent's store directory.

        waystation agent enrol --token wse-… --gateway https://gateway.example.org
    """
    from edge.agent.settings import load
    from edge.enrol.command import enrol_device

    text = sys.stdin.read() if token == "-" else token
    typer.echo(enrol_device(load(conf), text, gateway or []))


def up(conf: ConfOption = DEFAULT) -> None:
    """Run the agent in the foreground until Ctrl-C or SIGTERM. What it has accepted stays on disk."""
    from edge.agent.process import run
    from edge.agent.settings import load

    run(load(conf), typer.echo)


def status(conf: ConfOption = DEFAULT, json: JsonOption = False) -> None:
    """Show whether the running agent is connected, and what waits."""
    found = _ask(conf, "status")
    if json:
        _print_json(found)
        return
    for name, value in found.items():
        if name == "bearers":
            for bearer, facts in value.items():
                typer.echo(f"{'bearer':<11} {visible(bearer)}: {_facts(facts)}")
        elif isinstance(value, dict):
            typer.echo(f"{name:<11} {_facts(value)}")
        elif value != "":
            typer.echo(f"{name:<11} {_shown(value)}")


def _facts(table: dict[str, Any]) -> str:
    facts = [f"{key.replace('_', ' ')} {_shown(one)}" for key, one in table.items() if one not in ("", None)]
    return ", ".join(facts)


def peers(conf: ConfOption = DEFAULT, json: JsonOption = False) -> None:
    """Show the agents that this one is connected to, with the round trip to each, and the addresses where it finds
    none. One that is `unreachable` answers too late (mesh.latency_ms), and is offered nothing."""
    found = _ask(conf, "peers")
    if json:
        _print_json(found)
        return
    for one in found:
        facts = [one["problem"]]
        if one["state"] != "waiting":
            facts = [f"for {one['connected_s']:,.0f} s", "gateway in reach" if one["has_uplink"] else "", *facts]
        if one["round_trip_ms"] is not None:
            facts.append(f"round trip {one['round_trip_ms']:,.1f} ms")
        text = ", ".join(fact for fact in facts if fact)
        typer.echo(visible(f"{one['name'] or '-':<20}  {one['address']:<22}  {one['state']:<11}  {text}".rstrip()))


def log(
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many steps.")] = 50,
    conf: ConfOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Show the newest steps of all messages' ways, the newest last."""
    _print_steps(_ask(conf, "log", count=count), json)


def trace(
    message: Annotated[str, typer.Argument(help="The message's id.")],
    conf: ConfOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Show every step of one message's way through this agent."""
    _print_steps(_ask(conf, "trace", id=message), json)


def send(
    to: Annotated[str, typer.Argument(help="@ and the client id of an agent, or a topic.")],
    text: Annotated[str | None, typer.Argument(help="The content.")] = None,
    file: Annotated[Path | None, typer.Option(help="Send the content of a file; - is the standard input.")] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            help="For so many seconds at most, wait until the platform or the recipient has the message, and print "
            "which. The exit status is 1 if it is refused, expires, or is not there by then; it stays on its way.",
        ),
    ] = 0.0,
    conf: ConfOption = DEFAULT,
) -> None:
    """Hand a message to the running agent. Prints its id once it is on disk.

    waystation agent send @head-office 'the van is back'
    waystation agent send @head-office --file report.pdf --wait 60
    """
    from edge.agent.control import in_json

    if (text is None) is (file is None):
        raise typer.BadParameter("give either a text or --file")
    try:
        if file is None:
            content = (text or "").encode()
        else:
            content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    name = file.name if file is not None and str(file) != "-" else ""
    message = _ask(conf, "send", to=to, name=name, content=in_json(content))
    typer.echo(message)
    if wait:
        typer.echo(_outcome(conf, message, wait))


def discard(
    part: Annotated[str, typer.Argument(help="The part that is off: `broker`.")],
    conf: ConfOption = DEFAULT,
) -> None:
    """Remove what waits for a part of the running agent that is off. It is not sent, and nobody is told.

    waystation agent discard broker
    """
    found = _ask(conf, "discard", part=part)
    typer.echo(f"discarded: {found:,}")


def _outcome(conf: Path, message: str, wait_s: float) -> str:
    """What became of a message, once it has ended. Raises NotDelivered."""
    from edge.agent import way
    from edge.agent.errors import NotDelivered

    until = time.monotonic() + wait_s
    while True:
        for step in _ask(conf, "trace", id=message):
            event, detail = step["event"], step["detail"]
            if event in (way.ACKNOWLEDGED, way.DELIVERED):
                return visible(f"{event} {detail}".rstrip())
            if event in (way.REFUSED, way.EXPIRED):
                raise NotDelivered(f"message {message} is {event}{f': {detail}' if detail else ''}")
        if time.monotonic() >= until:
            raise NotDelivered(
                f"message {message} is on its way after {wait_s:g} s: `waystation agent trace {message}` says how far"
            )
        time.sleep(min(POLL_S, max(0.0, until - time.monotonic())))


def _ask(conf: Path, command: str, **request: Any) -> Any:
    from edge.agent.control import ask
    from edge.agent.settings import load

    return ask(Path(load(conf).store.directory), command, **request)


def _print_steps(steps: list[dict[str, Any]], json: bool) -> None:
    if json:
        _print_json(steps)
        return
    for step in steps:
        at = datetime.fromtimestamp(step["at_s"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{at}  {step['id']}  {step['part']:<6}  {step['event']:<12}  {step['detail']}"
        typer.echo(visible(line.rstrip()))


def _print_json(value: Any) -> None:
    from msgspec import json

    typer.echo(json.format(json.encode(value), indent=2).decode())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else visible(str(value))
