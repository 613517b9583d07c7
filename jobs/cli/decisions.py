"""`explain` and `audit`: routing decisions made again from the ledger, and compared with what was instructed."""

import json
import subprocess
import sys
from datetime import date, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from jobs.audit.completeness import reach_of
from jobs.audit.explain import Explanation
from jobs.audit.explain import explain as explained
from jobs.cli.context import cell, output, shared
from jobs.cli.dates import DATE, date_of
from jobs.cli.ledger import plain
from jobs.errors import AuditError
from jobs.query.ledger_reader import LedgerReader
from pipelines.routing.decisions import DIFFERS, LATER, MISSING, NUMBERING, SUPERFLUOUS, UNDECIDED, UNKNOWN, UNTOUCHED
from schemas.errors import WaystationError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

MEANINGS = {
    MISSING: "wanted, but not instructed",
    SUPERFLUOUS: "instructed, but not wanted",
    NUMBERING: "instructed with wrong numbers or a wrong limit",
    UNTOUCHED: "wanted, but reported as wanted by nobody",
    UNDECIDED: "not instructed, nor reported as wanted by nobody",
    UNKNOWN: "instructed for another place on ingress, or for a message that the ledger does not have",
}


def register(app: typer.Typer) -> None:
    app.command()(explain)
    app.command()(audit)


def explain(
    context: typer.Context,
    message_id: Annotated[str, typer.Argument(help="As in the column `id` of the table `messages`.")],
    as_json: AsJson = False,
) -> None:
    """Why a message went where it went: its routing decision made again, compared with what was instructed.

    The exit status is 1 if they differ.

    Examples:

        waystation query 'SELECT id, destination FROM messages LIMIT 5'
        waystation explain 0198c0de-0000-7000-8000-000000000000
    """
    options = shared(context)
    settings, tables = options.settings(), options.ledger()
    reach = reach_of(tables, settings.audit.patience_s)
    found = explained(LedgerReader(tables, {}), message_id, settings.kafka.shards, reach)
    if as_json:
        sys.stdout.write(
            json.dumps([_as_json(one) for one in found], indent=2, default=plain, ensure_ascii=False) + "\n"
        )
    else:
        for one in found:
            _show(one)
    if any(one.judgement.verdict == DIFFERS for one in found):
        raise typer.Exit(1)


def audit(
    context: typer.Context,
    day: Annotated[
        date | None,
        typer.Option("--date", parser=date_of, metavar=DATE, help="Messages appended on this date, UTC."),
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="Instead: from this time on, ISO 8601, UTC.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before this time; without it: to the end.")] = "",
    examples: Annotated[int, typer.Option(min=0, max=10_000, help="How many differing messages to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Make every message's routing decision again, and report what differs from what was instructed.

    The exit status is 1 if anything differs, 2 if nothing could be audited. It reads the ledger only, and gives way to
    a stack that runs beside it.

    Examples:

        waystation audit --date 2026-11-22
        waystation audit --since 2026-11-22T08:00 --until 2026-11-22T09:00 --json
    """
    options = shared(context)
    arguments = [
        ("--date", str(day) if day else ""),
        ("--since", since),
        ("--until", until),
        ("--examples", str(examples)),
    ]
    try:
        options.ledger(AuditError)  # without a ledger it says so, and starts no JVM
        environment = options.job_environment()
    except WaystationError as error:
        raise AuditError(str(error)) from error
    argv = [sys.executable, "-m", "jobs.audit", *[part for name, value in arguments if value for part in (name, value)]]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True)
    if not ended.stdout.startswith("{"):
        lines = ended.stderr.strip().splitlines()
        raise AuditError(lines[-1] if lines else f"the audit ended with status {ended.returncode} and said nothing")
    report = json.loads(ended.stdout)
    if as_json:
        sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    else:
        _show_report(report)
    if report["differs"]:
        raise typer.Exit(1)


def _show(one: Explanation) -> None:
    terminal, message = output(), one.message
    facts = {
        "message": message["id"],
        "from, to": f"{message['source']} → {message['destination']}, QoS {message['qos']}",
        "accepted": _time(message["accepted"]),
        "appended": f"{_time(message['appended'])}: ingress partition {message['partition']}, "
        f"offset {message['offset']}",
        "route keys": "none: an inbox goes to its client's shard" if one.is_inbox else "  ".join(one.route_keys),
        "wanted by": _shards(one.wanted),
    }
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, cell(value))
    terminal.print(table)
    if one.routes:
        table = _table("routes in effect", "route key", "shard", "from", "until", "because of (offset on routes)")
        for route_key, (shard, start, until, by) in one.routes:
            events = [f"{change.op} at offset {change.offset}, appended {_time(change.appended)}" for change in by]
            end = "" if until.year == 9999 else _time(until)
            table.add_row(cell(route_key), str(shard), _time(start), end, "; ".join(events))
        terminal.print(table)
    if one.instructions:
        fields = ("scope", "router", "number", "limit", "shard", "appended")
        _print_rows("instructions", fields, one.instructions)
    terminal.print(f"verdict: {_verdict(one)}")
    if one.outcomes:
        _print_rows("outcomes", ("at", "outcome", "client", "qos", "shard", "number"), one.outcomes)
    if one.completion:
        terminal.print(f"complete {_time(one.completion['completed'])}, after {one.completion['touches']} instructions")
    else:
        terminal.print("not complete: somebody is away or slow, or the ledger is behind")


def _verdict(one: Explanation) -> str:
    judgement = one.judgement
    if judgement.verdict == LATER:
        return "not yet: the ledger does not reach far enough beyond this message; ask again in a few minutes"
    if judgement.verdict != DIFFERS:
        return "right: the instructions are those that the routes ask for"
    return "differs: " + "; ".join(
        f"{found.kind} (scope {found.scope}), {_shards(found.shards)}: {MEANINGS[found.kind]}"
        for found in judgement.differences
    )


def _show_report(report: dict[str, Any]) -> None:
    terminal = output()
    counts = ("messages", "right", "differs", "later")
    table = Table(show_header=False, title=f"audit of [{report['since']}, {report['until']})".replace("[", r"\["))
    table.title_justify = "left"
    for name in counts:
        table.add_row(name, f"{report[name]:,}")
    terminal.print(table)
    if report["everyone"]:
        share = report["everyone"] / max(report["messages"], 1)
        terminal.print(
            f"sent to everyone by a router that did not know the routes to be complete: {report['everyone']:,} "
            f"({share:.1%})"
        )
    if report["later"]:
        reaches = ", ".join(f"{name} until {value or 'nowhere'}" for name, value in report["reach"].items())
        terminal.print(f"left for later, as the ledger reaches only so far: {reaches}")
    if not report["differs"]:
        terminal.print("no differences")
        return
    table = _table("differences", "kind", "messages", "meaning")
    for kind, number in report["kinds"].items():
        table.add_row(kind, f"{number:,}", MEANINGS[kind])
    terminal.print(table)
    if report["examples"]:
        table = _table("the first of them", "message", "destination", "appended", "differences")
        for one in report["examples"]:
            found = [f"{kind['kind']} ({kind['scope']}) {_shards(kind['shards'])}" for kind in one["differences"]]
            table.add_row(one["message_id"], cell(one["destination"]), one["appended"], "; ".join(found))
        terminal.print(table)
        terminal.print("each in full: waystation explain MESSAGE")


def _print_rows(title: str, fields: tuple[str, ...], rows: tuple[dict[str, Any], ...]) -> None:
    table = _table(title, *fields)
    for row in rows:
        values = [row[name] for name in fields]
        table.add_row(*[_time(value) if isinstance(value, datetime) else cell(value) for value in values])
    output().print(table)


def _table(title: str, *headings: str) -> Table:
    return Table(*headings, title=title, title_justify="left")


def _shards(shards: Any) -> str:
    if not shards:
        return "no shard"
    return f"shard{'' if len(shards) == 1 else 's'} {', '.join(str(shard) for shard in shards)}"


def _time(moment: datetime | date) -> str:
    return str(plain(moment))


def _as_json(one: Explanation) -> dict[str, Any]:
    return {
        "message": one.message,
        "route_keys": one.route_keys,
        "routes": [
            {
                "route_key": route.route_key,
                "shard": route.interval.shard,
                "effective_from": route.interval.start,
                "effective_until": None if route.interval.until.year == 9999 else route.interval.until,
                "by": [change._asdict() for change in route.interval.by],
            }
            for route in one.routes
        ],
        "wanted": one.wanted,
        "instructions": one.instructions,
        "verdict": one.judgement.verdict,
        "differences": [found._asdict() for found in one.judgement.differences],
        "outcomes": one.outcomes,
        "completion": one.completion,
    }
