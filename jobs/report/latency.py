"""Sections on time: how long messages took to be routed, delivered, completed."""

from jobs.report.facts import BOUNDS_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Facts
from jobs.report.parts import Cell, PageTable, Plot, Row, Section, number
from jobs.report.plots import bars, percentiles_over_time

PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999"}
"""As they are written, and the columns that have them."""
STAGES = {
    "routed": "From append to routed: an instruction stands on egress.",
    "delivered": "From append to delivered: sent at QoS 0, acknowledged by the client at QoS 1 and 2.",
    "completed": "From append to completed: all recipients are done, or nobody wanted it.",
}
"""Stages in their order, and what each is."""


def latency(facts: Facts) -> Section:
    rows = facts.rows("latency")
    if not rows:
        return Section("latency", "Latency", "Nothing was routed, delivered or completed.")
    plots = [_plot(facts, stage) for stage in STAGES if any(row["stage"] == stage for row in rows)]
    of_date = [row for stage in STAGES for row in rows if row["stage"] == stage and row["slot"] is None]
    table = PageTable(
        "Milliseconds over the whole date",
        ["from append to", "count", *PERCENTILES, "greatest"],
        [[Cell(_stage(row)), number(row["rows"]), *_percentiles(row), number(row["greatest"])] for row in of_date],
        "",
    )
    lead = (
        "Milliseconds from a message's append time, by when the stage was reached; percentiles by nearest rank, to "
        "three digits. Deliveries that followed no instruction (retained messages; the first seconds of a "
        "subscription) are left out. What took longer than a minute has mostly waited for a client that was away."
    )
    return Section("latency", "Latency", lead, plots, [table])


def completion_times(facts: Facts) -> Section:
    found = {row["up_to_ms"]: row["messages"] for row in facts.rows("completion_times")}
    if not found:
        return Section("completion", "Completion times", "No message was completed.")
    bounds = [*BOUNDS_MS, None]
    last = max(bounds.index(bound) for bound in found)
    first = min(bounds.index(bound) for bound in found)
    shown = {_bound(bound): found.get(bound, 0) for bound in bounds[first : last + 1]}
    total, reached, rows = sum(shown.values()), 0, []
    for words, messages in shown.items():
        reached += messages
        rows.append(
            [Cell(words), number(messages, messages / total), Cell(f"{reached * 10_000 // total / 100:.2f}", "number")]
        )
    most = max(shown, key=lambda words: shown[words])
    plot = Plot(
        bars("completion", f"Completed messages by how long they took: most {most}.", "messages", "took up to", shown),
        "Messages by the time from append to completion.",
    )
    table = PageTable("Messages by the time they took", ["up to", "messages", "% of all up to here"], rows, "")
    return Section("completion", "Completion times", "Each bar begins where the one before ends.", [plot], [table])


def _plot(facts: Facts, stage: str) -> Plot:
    of_day = next(row for row in facts.rows("latency") if row["stage"] == stage and row["slot"] is None)
    by_step = {
        facts.grid.clamped(row["slot"]): row
        for row in facts.rows("latency")
        if row["stage"] == stage and row["slot"] is not None
    }
    lines = {
        shown: [by_step[step][column] if step in by_step else None for step in range(facts.grid.steps)]
        for shown, column in PERCENTILES.items()
    }
    words = ", ".join(f"{shown} {number(of_day[column]).text}" for shown, column in PERCENTILES.items())
    label = f"Milliseconds from append to {stage}, percentiles per {facts.grid.step_words}. Over the date: {words}."
    return Plot(percentiles_over_time(f"latency-{stage}", label, facts.grid, lines), STAGES[stage])


def _stage(row: Row) -> str:
    return str(row["stage"]) if row["qos"] is None else f"{row['stage']}, QoS {row['qos']}"


def _percentiles(row: Row) -> list[Cell]:
    return [number(row[column]) for column in PERCENTILES.values()]


def _bound(bound: float | None) -> str:
    if bound is None:
        return f"more than {_bound(BOUNDS_MS[-1])}"
    for unit_ms, unit in ((HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")):
        if bound >= unit_ms:
            return f"{bound / unit_ms:g} {unit}"
    return f"{bound:g} ms"
