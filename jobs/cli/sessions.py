"""`sessions`, `session`, `kick`: clients of the gateways, over their admin API."""

import sys
import time
from typing import Annotated, Any, Literal

import typer

from jobs.cli.administration import AsJson, Gateways, TokenFile, admin_apis
from jobs.cli.context import shared
from jobs.cli.gateway_api import GatewayApi, answers, find
from jobs.errors import GatewayApiError
from jobs.output import cell, json_text, output, visible
from jobs.text_tables import Column

ClientId = Annotated[str, typer.Argument(metavar="CLIENT-ID", help="The client id, as `sessions` shows it.")]


def register(app: typer.Typer) -> None:
    app.command()(sessions)
    app.command()(session)
    app.command()(kick)


def sessions(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(help="Show only clients whose id begins with this text.")] = "",
    state: Annotated[
        Literal["connected", "offline"] | None, typer.Option(help="Show only sessions in this state.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sessions, ordered by client id.")] = 100,
    as_json: AsJson = False,
    gateway: Gateways = None,
    token_file: TokenFile = None,
) -> None:
    """List the sessions of clients, connected or offline, with their queues.

    Examples:

        waystation sessions
        waystation sessions sensors/ --state offline --limit 1000
    """
    found: list[dict[str, Any]] = []
    total = 0
    apis = admin_apis(shared(context), gateway, token_file)
    for api, (some, all_of_it) in answers(apis, lambda api: api.sessions(prefix, state or "", limit)):
        found += [{"gateway": api.url, **one} for one in some]
        total += all_of_it
    found = sorted(found, key=lambda one: one["client"])[:limit]
    if as_json:
        _print_json({"sessions": found, "total": total})
        return
    terminal = output()
    terminal.show_table(_COLUMNS, [_cells(one) for one in found], title="sessions")
    terminal.print(f"{len(found)} of {total} sessions" + ("; raise --limit to see more" if len(found) < total else ""))


_FIELDS = ("client", "state", "since", "user", "peer", "protocol", "subscriptions", "queued", "unacknowledged")
_COLUMNS = [Column(heading, is_number=heading in _FIELDS[6:]) for heading in _FIELDS]


def _cells(one: dict[str, Any]) -> list[str]:
    row = {**one, "since": _ago(one["since_ms"]), "queued": one["queued_messages"]}
    return [cell(row[name]) for name in _FIELDS]


def session(
    context: typer.Context,
    client_id: ClientId,
    as_json: AsJson = False,
    gateway: Gateways = None,
    token_file: TokenFile = None,
) -> None:
    """Show one session: connection, queue, in-flight windows, subscriptions, and whether it has a will. Payloads are
    never shown.

    Example: `waystation session alice`
    """
    apis = admin_apis(shared(context), gateway, token_file)
    for api, found in find(apis, client_id):
        if as_json:
            _print_json({"gateway": api.url, **found})
        else:
            _show(api, found)
        return
    raise _nobody(client_id)


def kick(
    context: typer.Context,
    client_id: ClientId,
    end_session: Annotated[
        bool, typer.Option("--end-session", help="End the session too; its queue and subscriptions are deleted.")
    ] = False,
    as_json: AsJson = False,
    gateway: Gateways = None,
    token_file: TokenFile = None,
) -> None:
    """Disconnect a client with reason code 0x98 (Administrative action). Its will is published. It may reconnect.

    Examples:

        waystation kick alice
        waystation kick alice --end-session
    """
    apis = admin_apis(shared(context), gateway, token_file)
    for api, kicked in answers(apis, lambda api: api.kick(client_id, end_session=end_session)):
        if kicked is None:
            continue
        if as_json:
            _print_json({"gateway": api.url, **kicked})
            return
        connection = "disconnected" if kicked["connection_ended"] else "was not connected"
        ended = "; its session has ended" if kicked["session_ended"] else ""
        output().print(f"{cell(client_id)} {connection}{ended}")
        return
    raise _nobody(client_id)


def _show(api: GatewayApi, found: dict[str, Any]) -> None:
    terminal = output()
    queue, windows = found["queue"], found["windows"]
    facts = {
        "client": found["client"],
        "gateway": api.url,
        "state": f"{found['state']}, {_ago(found['since_ms'])}",
        "user": found["user"] or "–",
        "peer": found["peer"] or "–",
        "protocol": found["protocol"] or "–",
        "session": f"started {_ago(found['begun_ms'])}; expires {found['expiry_s']} s after its connection ends",
        "shard, epoch": f"{found['shard']}, {found['epoch']}",
        "will": "yes" if found["has_will"] else "no",
        "queue": f"{queue['in_memory']} in memory, {queue['in_spool']} in the spool, {queue['bytes']} bytes",
        "to the client": f"{windows['to_client']} of {windows['to_client_maximum']} unacknowledged, "
        f"of which {windows['to_client_released']} await PUBCOMP",
        "from the client": f"{windows['from_client_on_way']} at QoS 2 in flight to Kafka, "
        f"{windows['from_client_received']} await PUBREL",
    }
    terminal.show_facts(facts, title="session")
    names = ("filter", "qos", "no_local", "retain_as_published", "retain_handling", "identifier")
    rows = [[cell(one[name]) for name in names] for one in found["subscription_list"]]
    headings = ("filter", "qos", "no local", "retain as published", "retain handling", "identifier")
    terminal.show_table(headings, rows, title="subscriptions")


def _nobody(client_id: str) -> GatewayApiError:
    return GatewayApiError(
        f"no gateway has a session for {visible(client_id)}: list the sessions with `waystation sessions`"
    )


def _print_json(content: dict[str, Any]) -> None:
    sys.stdout.write(json_text(content))


def _ago(at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    seconds = max(0, int(time.time() - at_ms / 1000))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
