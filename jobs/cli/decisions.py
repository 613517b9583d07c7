"""`explain` and `audit`: routing decisions repeated from the ledger, and compared with the instructions."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from typing import Annotated, Any

import typer

from jobs.audit.completeness import completeness_watermarks
from jobs.audit.explain import Explanation
from jobs.audit.explain import explain as explained
from jobs.cli.context import shared
from jobs.cli.dates import DATE, date_of
from jobs.errors import AuditError, QueryError
from jobs.output import cell, json_text, output, plain
from jobs.query.journeys import newest
from jobs.query.ledger_reader import LedgerReader
from jobs.text_tables import Column
from pipelines.routing.decisions import DIFFERS, LATER, MISSING, NUMBERING, SUPERFLUOUS, UNDECIDED, UNKNOWN, UNTOUCHED
from schemas.errors import WaystationError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

MEANINGS = {
    MISSING: "an instruction was due for a shard, but was not written",
    SUPERFLUOUS: "an instruction was written for a shard, but was not due",
    NUMBERING: "the instructions have wrong numbers or a wrong limit",
    UNTOUCHED: "an instruction was due, but the message was reported as untouched",
    UNDECIDED: "no instruction was due, but the message was not reported as untouched",
    UNKNOWN: "the instruction names another ingress offset, or a message that the ledger does not have",
}


def register(app: typer.Typer) -> None:
    app.command()(explain)
    app.command()(audit)


def explain(
    context: typer.Context,
    message_id: Annotated[
        str | None, typer.Argument(metavar="MESSAGE-ID", help="The id, from the column `id` of the table `messages`.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Explain the last message from a client.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain the routing of a message: repeat the decision from the ledger and compare it with the instructions.

    The exit status is 1 if they differ.

    Examples:

        waystation explain --last
        waystation explain 0198c0de-0000-7000-8000-000000000000
    """
    options = shared(context)
    if (message_id is None) != last:
        raise QueryError("give either the id of a message, or --last")
    settings, tables = options.settings(), options.ledger()
    watermarks = completeness_watermarks(tables, settings.audit.patience_s)
    with closing(LedgerReader(tables, {})) as reader:
        chosen = newest(reader, 1)[0] if message_id is None else message_id
        found = explained(reader, chosen, settings.kafka.shards, watermarks)
    if as_json:
        sys.stdout.write(json_text([_as_json(one) for one in found]))
    else:
        for one in found:
            _show(one)
    if any(one.judgement.verdict == DIFFERS for one in found):
        raise typer.Exit(1)


def audit(
    context: typer.Context,
    day: Annotated[
        date | None,
        typer.Option("--date", parser=date_of, metavar=DATE, help="Audit the messages appended on this date, UTC."),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Audit the messages appended from this time on, ISO 8601, UTC.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="TIME", help="Only with --since: end before this time. Default: now.")
    ] = "",
    examples: Annotated[
        int, typer.Option(min=0, max=10_000, help="Maximum number of differing messages to show.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Audit the routing of a whole period: repeat every decision from the ledger and report differences from the
    instructions.

    The exit status is 1 if anything differs, 2 if nothing could be audited. The audit only reads the ledger, and runs
    at a lower priority than a running stack.

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
        options.ledger(AuditError)  # reports a missing ledger without starting a JVM
        environment = options.job_environment()
    except WaystationError as error:
        raise AuditError(str(error)) from error
    argv = [sys.executable, "-m", "jobs.audit", *[part for name, value in arguments if value for part in (name, value)]]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True)
    if not ended.stdout.startswith("{"):
        lines = ended.stderr.strip().splitlines()
        raise AuditError(
            lines[-1]
            if lines
            else f"the audit ended with status {ended.returncode} without an error message: run it again"
        )
    report = json.loads(ended.stdout)
    if as_json:
        sys.stdout.write(json_text(report))
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
        "route keys": "none: an inbox belongs to the shard of its client"
        if one.is_inbox
        else "  ".join(one.route_keys),
        "due for": _shards(one.wanted),
    }
    terminal.show_facts(facts)
    if one.routes:
        rows = []
        for route_key, (shard, start, until, by) in one.routes:
            events = [f"{change.op} at offset {change.offset}, appended {_time(change.appended)}" for change in by]
            end = "" if until.year == 9999 else _time(until)
            rows.append((cell(route_key), str(shard), _time(start), end, "; ".join(events)))
        columns = [*map(Column, ("route key", "shard", "from", "until")), Column("route events", is_prose=True)]
        terminal.show_table(columns, rows, title="active routes")
    if one.instructions:
        fields = ("scope", "router", "number", "limit", "shard", "appended")
        _print_rows("instructions", fields, one.instructions)
    terminal.print(_verdict(one))
    if one.outcomes:
        _print_rows("outcomes", ("at", "outcome", "client", "qos", "shard", "number"), one.outcomes)
    if one.completion:
        touches = one.completion["touches"]
        instructions = f"{touches} instruction{'' if touches == 1 else 's'}"
        terminal.print(f"Completed at {_time(one.completion['completed'])}, after {instructions}.")
    else:
        terminal.print("Not completed: a recipient is offline or slow, or the ledger lags.")


def _verdict(one: Explanation) -> str:
    judgement = one.judgement
    if judgement.verdict == LATER:
        return "Not audited yet: the ledger is not complete up to this message; try again in a few minutes."
    if judgement.verdict != DIFFERS:
        return "Routing correct: instructions match the routes."
    return "Routing differs: " + "; ".join(
        f"{found.kind} (scope {found.scope}), {_shards(found.shards)}: {MEANINGS[found.kind]}"
        for found in judgement.differences
    )


_COUNTS = {"messages": "messages", "right": "correct", "differs": "different", "later": "not audited yet"}
"""Numbers of a report, with their headings."""


def _show_report(report: dict[str, Any]) -> None:
    terminal = output()
    facts = {heading: f"{report[name]:,}" for name, heading in _COUNTS.items()}
    terminal.show_facts(facts, title=f"audit of messages appended from {report['since']} until {report['until']}")
    if report["everyone"]:
        share = report["everyone"] / max(report["messages"], 1)
        terminal.print(
            f"{report['everyone']:,} messages ({share:.1%}) were sent to all shards, because the router did not know "
            f"whether its routes were complete"
        )
    if report["later"]:
        moments = ", ".join(f"{name} until {value or '–'}" for name, value in report["watermarks"].items())
        terminal.print(f"Some messages cannot be audited yet. The ledger's tables are complete until: {moments}")
    if not report["differs"]:
        terminal.print("Routing correct: no differences.")
        return
    kinds = [(kind, f"{number:,}", MEANINGS[kind]) for kind, number in report["kinds"].items()]
    columns = (Column("kind"), Column("messages", is_number=True), Column("meaning", is_prose=True))
    terminal.show_table(columns, kinds, title="differences")
    if report["examples"]:
        rows = []
        for one in report["examples"]:
            found = [f"{kind['kind']} ({kind['scope']}) {_shards(kind['shards'])}" for kind in one["differences"]]
            rows.append((cell(one["message_id"]), cell(one["destination"]), one["appended"], "; ".join(found)))
        terminal.show_table(
            ("message", "destination", "appended", "differences"), rows, title="first differing messages"
        )
        terminal.print("Details of a message: waystation explain MESSAGE-ID")


def _print_rows(title: str, fields: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> None:
    cells = [
        [_time(value) if isinstance(value, datetime) else cell(value) for value in (row[name] for name in fields)]
        for row in rows
    ]
    output().show_table(fields, cells, title=title)


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
