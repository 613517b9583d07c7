"""Sections on the outcomes of messages, and on what stood out and may need attention."""

from collections.abc import Sequence

from jobs.report.facts import Facts
from jobs.report.parts import Cell, PageTable, Plot, Row, Section, moment, name, number, ranked
from jobs.report.plots import over_time

LOSSES = ("dropped", "expired", "ended")
"""Outcomes of messages that a recipient had subscribed to and did not get."""
MEANINGS = {
    "delivered": "acknowledged by the client",
    "sent": "written to the client's connection at QoS 0",
    "expired": "the message expired before it could be sent",
    "ended": "the recipient's session ended before delivery",
    "dropped": "a limit of the recipient's session was reached, or the client was too slow",
    "nobody": "the shard had no recipient for the instruction; normal, because routes are coarser than filters",
    "untouched": "no shard had an active route for the message; normal if nobody subscribes",
}
EVERYONE = "everyone"


def outcomes(facts: Facts) -> Section:
    rows, routing = facts.rows("outcomes"), facts.rows("routing")
    kinds = PageTable(
        "Outcomes",
        ["outcome", "count", "clients", "meaning"],
        [
            [Cell(row["outcome"]), counted, number(row["clients"]), Cell(MEANINGS.get(row["outcome"], ""))]
            for row, counted in ranked(rows, "rows")
        ],
        "no outcomes.",
    )
    routers = PageTable(
        "Instructions by router and scope",
        ["router", "scope", "instructions"],
        [[name(row["router"]), Cell(row["scope"]), counted] for row, counted in ranked(routing, "instructions")],
        "no messages were routed.",
    )
    lead = (
        "An outcome is what happened to a message for one recipient. Both routers write each instruction; the table "
        "counts the copy that came first."
    )
    return Section("outcomes", "Outcomes", lead, _undelivered(facts), [kinds, routers])


def _undelivered(facts: Facts) -> list[Plot]:
    found, grid = facts.rows("undelivered"), facts.grid
    kinds = {
        kind: grid.filled((row["slot"], row["rows"]) for row in found if row["kind"] == kind)
        for kind in (*LOSSES, "quarantined")
        if any(row["kind"] == kind for row in found)
    }
    if not kinds:
        return []
    words = ", ".join(f"{sum(values):.0f} {kind}" for kind, values in kinds.items())
    label = f"Undelivered messages per {grid.step_words}; in total {words}."
    svg = over_time("undelivered", label, f"deliveries per {grid.step_words}", grid, kinds, None, facts.restarts)
    return [Plot(svg, "Deliveries that were dropped, expired, or ended with the session; records in quarantine.")]


def findings(facts: Facts) -> Section:
    """What stood out; first on the page. The ledger does not record what policy refused: gateways count it."""
    waiting, flagged, quarantined = facts.rows("waiting"), facts.rows("flagged"), facts.rows("quarantined")
    judged = facts.rows("expectations")
    failed = [row for row in judged if not row["success"]]
    counts = {row["outcome"]: row["rows"] for row in facts.rows("outcomes")}
    everyone = sum(row["instructions"] for row in facts.rows("routing") if row["scope"] == EVERYONE)
    unreported = sum(row["connections"] for row in facts.rows("ends") if row["how"] == "unreported")
    points = [
        f"{words}: {count}."
        for words, count in (
            ("Incomplete messages (a recipient is offline or slow, or the ledger lags)", _all(waiting)),
            *((f"Deliveries {outcome} ({MEANINGS[outcome]})", counts.get(outcome, 0)) for outcome in LOSSES),
            ("Instructions to all shards (the routes were not known to be complete)", everyone),
            ("Messages flagged by policy (an attachment is too large)", _all(flagged)),
            ("Unreadable records in quarantine", _all(quarantined)),
            ("Failed expectations of the quality job", len(failed)),
            ("Connections without a reported end (their gateway was lost)", unreported),
            ("Gateways lost or restarted", len(facts.rows("restarts"))),
        )
        if count
    ]
    tables = (
        _waiting(waiting), _losses(facts.rows("losses")), _flagged(flagged), _quarantined(quarantined),
        _expectations(failed),
    )  # fmt: skip
    lead = "" if points else "Nothing to report: no message is waiting, lost, flagged or quarantined."
    lead += f" {_judged(judged)} Messages refused by policy are not in the ledger; the gateways' metrics count them."
    return Section(
        "findings", "Findings", lead.strip(), tables=[table for table in tables if table.rows], points=points
    )


def _judged(judged: Sequence[Row]) -> str:
    if not judged:
        return "The quality job (waystation quality) has not checked this date yet."
    held = sum(row["success"] for row in judged)
    run_at = moment(judged[0]["run_at"]).text
    return f"{held} of {len(judged)} expectations of the quality job passed (run at {run_at} UTC)."


def _waiting(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Incomplete messages, oldest first",
        ["message", "from", "to", "QoS", "appended, UTC", "expires, UTC"],
        [
            [
                name(row["id"]),
                name(row["source"]),
                name(row["destination"]),
                number(row["qos"]),
                moment(row["appended"]),
                moment(row["expires"]),
            ]
            for row in rows
        ],
        "",
    )


def _losses(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Lost deliveries by client",
        ["outcome", "client", "deliveries"],
        [[Cell(row["outcome"]), name(row["client"]), counted] for row, counted in ranked(rows, "messages")],
        "",
    )


def _flagged(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Messages flagged by policy, by sender",
        ["client", "messages", "bytes"],
        [[name(row["source"]), counted, number(row["bytes"])] for row, counted in ranked(rows, "messages")],
        "",
    )


def _quarantined(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Quarantined records",
        ["Kafka topic", "reason", "records", "first, UTC", "last, UTC"],
        [
            [name(row["topic"]), name(row["reason"]), counted, moment(row["first"]), moment(row["last"])]
            for row, counted in ranked(rows, "records")
        ],
        "",
    )


def _expectations(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Failed expectations",
        ["expectation", "unexpected rows", "rows checked"],
        [[name(row["expectation"]), number(row["unexpected"]), number(row["judged"])] for row in rows],
        "",
    )


def _all(rows: Sequence[Row]) -> int:
    return int(rows[0]["all_of_them"]) if rows else 0
