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
    "expired": "its time was over before it could be sent",
    "ended": "the recipient's session ended first",
    "dropped": "refused by a limit of the recipient's session, or it waited too long for a slow client",
    "nobody": "an instruction without recipient: route keys are coarse; no fault",
    "untouched": "a message that no shard wanted; no fault",
}
EVERYONE = "everyone"


def outcomes(facts: Facts) -> Section:
    rows, routing = facts.rows("outcomes"), facts.rows("routing")
    kinds = PageTable(
        "Outcomes by kind",
        ["outcome", "count", "clients", "meaning"],
        [
            [Cell(row["outcome"]), counted, number(row["clients"]), Cell(MEANINGS.get(row["outcome"], ""))]
            for row, counted in ranked(rows, "rows")
        ],
        "No outcome was reported.",
    )
    routers = PageTable(
        "Instructions by router and scope",
        ["router", "scope", "instructions"],
        [[name(row["router"]), Cell(row["scope"]), counted] for row, counted in ranked(routing, "instructions")],
        "Nothing was routed.",
    )
    lead = (
        "A row of outcomes is a recipient of a message. Of the two routers' copies of an instruction the first counts."
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
    label = f"What did not arrive, per {grid.step_words}: {words} in all."
    svg = over_time("undelivered", label, f"copies per {grid.step_words}", grid, kinds, None, facts.restarts)
    return [Plot(svg, "Copies that were dropped, had expired or whose session had ended; records in quarantine.")]


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
            ("Messages that are not complete (somebody is away or slow, or the ledger is behind)", _all(waiting)),
            *((f"Copies {outcome} ({MEANINGS[outcome]})", counts.get(outcome, 0)) for outcome in LOSSES),
            ("Instructions to every shard (routes were not known to be complete)", everyone),
            ("Messages that policy flagged (an attachment is larger than policy has it)", _all(flagged)),
            ("Records that could not be read, in quarantine", _all(quarantined)),
            ("Expectations of waystation quality that do not hold", len(failed)),
            ("Connections whose end nobody reported (their gateway was lost)", unreported),
            ("Times that a gateway was found lost, or started again", len(facts.rows("restarts"))),
        )
        if count
    ]
    tables = (
        _waiting(waiting), _losses(facts.rows("losses")), _flagged(flagged), _quarantined(quarantined),
        _expectations(failed),
    )  # fmt: skip
    lead = "" if points else "Nothing: no message waits, none was lost, flagged or quarantined."
    lead += f" {_judged(judged)} What policy refused is not in the ledger: the gateways' metrics count it."
    return Section(
        "findings", "What stood out", lead.strip(), tables=[table for table in tables if table.rows], points=points
    )


def _judged(judged: Sequence[Row]) -> str:
    if not judged:
        return "waystation quality has not judged this date."
    held = sum(row["success"] for row in judged)
    run_at = moment(judged[0]["run_at"]).text
    return f"{held} of {len(judged)} expectations of waystation quality hold (run of {run_at} UTC)."


def _waiting(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Messages that are not complete, oldest first",
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
        "Copies lost, by client",
        ["outcome", "client", "copies"],
        [[Cell(row["outcome"]), name(row["client"]), counted] for row, counted in ranked(rows, "messages")],
        "",
    )


def _flagged(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        "Messages that policy flagged, by sender",
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
        "Expectations that do not hold",
        ["expectation", "unexpected", "of"],
        [[name(row["expectation"]), number(row["unexpected"]), number(row["judged"])] for row in rows],
        "",
    )


def _all(rows: Sequence[Row]) -> int:
    return int(rows[0]["all_of_them"]) if rows else 0
