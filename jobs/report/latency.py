"""Sections on time: how long messages took to be routed, delivered, completed."""

from jobs.report.facts import BOUNDS_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Facts
from jobs.report.parts import Cell, PageTable, Plot, Row, Section, name, number, ranked
from jobs.report.plots import bars, grouped_bars, percentiles_over_time

PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999"}
"""Percentiles as shown, and their columns."""
STAGES = {
    "routed": "From append to routed: the instruction is on egress.",
    "delivered": "From append to delivered: sent at QoS 0, acknowledged by the client at QoS 1 and 2.",
    "completed": "From append to completed: all recipients are finished, or there were none.",
}
"""Stages in their order, with descriptions."""


def latency(facts: Facts) -> Section:
    rows = facts.rows("latency")
    if not rows:
        return Section("latency", "Latency", "No message was routed, delivered or completed.")
    plots = [_plot(facts, stage) for stage in STAGES if any(row["stage"] == stage for row in rows)]
    plots += _stages(facts)
    of_date = [row for stage in STAGES for row in rows if row["stage"] == stage and row["slot"] is None]
    table = PageTable(
        "Latency over the whole date",
        ["from append to", "count", *(f"{shown}, ms" for shown in PERCENTILES), "maximum, ms"],
        [[Cell(_stage(row)), number(row["rows"]), *_percentiles(row), number(row["greatest"])] for row in of_date],
        "",
    )
    lead = (
        "Milliseconds from a message's append time to each stage, plotted at the time when the stage was reached. "
        "Percentiles are nearest-rank values with three digits. Deliveries without an instruction (retained messages, "
        "and the first seconds of a subscription) are left out. Latencies above a minute are mostly due to offline "
        "clients."
    )
    return Section("latency", "Latency", lead, plots, [table, _clients(facts)])


def _stages(facts: Facts) -> list[Plot]:
    rows = facts.rows("stages")
    if not rows:
        return []
    words = "; ".join(f"{row['stage']} {number(row['p50']).text} and {number(row['p99']).text}" for row in rows)
    svg = grouped_bars(
        "stages",
        f"Milliseconds by stage, p50 and p99: {words}.",
        "milliseconds",
        [row["stage"].replace(" to ", " to\n") for row in rows],
        {"p50": [max(0, row["p50"]) for row in rows], "p99": [max(0, row["p99"]) for row in rows]},
    )
    return [
        Plot(svg, "Time spent in each stage. Stored: the message is in Kafka and its sender has the acknowledgement.")
    ]


def _clients(facts: Facts) -> PageTable:
    return PageTable(
        "Slowest recipients",
        ["client", "deliveries", "p50, ms", "p99, ms"],
        [
            [name(row["client"]), number(row["rows"]), number(row["p50"]), slowest]
            for row, slowest in ranked(facts.rows("slowest_clients"), "p99")
        ],
        "no message was delivered by an instruction.",
    )


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
        if messages:
            share = Cell(f"{reached * 10_000 // total / 100:.2f}", "number")
            rows.append([Cell(words), number(messages, messages / total), share])
    most = max(shown, key=lambda words: shown[words])
    plot = Plot(
        bars("completion", f"Completed messages by completion time: most within {most}.", "messages", "up to", shown),
        "Messages by time from append to completion.",
    )
    table = PageTable("Messages by completion time", ["up to", "messages", "cumulative %"], rows, "")
    return Section(
        "completion", "Completion times", "Each bar covers the range above the previous bar.", [plot], [table]
    )


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
    caption = f"{STAGES[stage]} The line is the median; the bands reach up to p90, p99 and p99.9."
    return Plot(percentiles_over_time(f"latency-{stage}", label, facts.grid, lines, facts.restarts), caption)


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
