"""Sections on traffic: over the day, its clients and topics, and the messages with most recipients."""

from collections.abc import Sequence

from jobs.report.facts import BOUNDS_BYTES, EARLIER_DAYS, Facts
from jobs.report.parts import (
    Cell,
    PageTable,
    Plot,
    Row,
    Section,
    bytes_words,
    moment,
    name,
    number,
    plain_number,
    ranked,
)
from jobs.report.plots import bars, over_time

LEVELS = (0, 1, 2)
INBOXES = "@"


def traffic(facts: Facts) -> Section:
    grid, rows = facts.grid, facts.rows("traffic")
    by_qos = {
        f"QoS {qos}": grid.filled((row["slot"], row["messages"]) for row in rows if row["qos"] == qos) for qos in LEVELS
    }
    size = grid.filled((row["slot"], row["bytes"]) for row in rows)
    copies = grid.filled((row["slot"], row["copies"]) for row in facts.rows("deliveries"))
    messages = [sum(of_step) for of_step in zip(*by_qos.values(), strict=True)]
    step, columns = grid.step_words, [*by_qos.values(), messages, size, copies]
    plots = [
        Plot(
            over_time(
                "traffic",
                f"Messages accepted and deliveries per {step}: {_most(facts, messages, 'messages')}; "
                f"{_most(facts, copies, 'deliveries')}.",
                f"messages per {step}",
                grid,
                by_qos,
                {"deliveries": copies},
                facts.restarts,
            ),
            f"Messages accepted per {step}, by QoS, and deliveries.",
        ),
        Plot(
            over_time(
                "bytes",
                f"Payload accepted per {step}: {_most(facts, size, 'bytes')}.",
                f"bytes per {step}",
                grid,
                {"bytes": size},
            ),
            f"Payload bytes accepted per {step}.",
        ),
        *_backlog(facts),
        *_sizes(facts),
        *_shards(facts),
    ]
    table = PageTable(
        f"Traffic by {grid.row_words}",
        ["from, UTC", *by_qos, "messages", "bytes", "deliveries"],
        [
            [Cell(grid.row_at(row)), *map(number, values)]
            for row, values in enumerate(zip(*map(grid.by_row, columns), strict=True))
            if any(values)
        ],
        "",
    )
    own = facts.rows("left_out")[0]["messages"]
    lead = "Messages count at their append time, deliveries at the time they were reported. Empty rows are left out."
    if own:
        lead += f" {own} messages of the platform itself, about clients and shards, are not counted on this page."
    if not any(messages) and not any(copies):
        return Section("traffic", "Traffic", "No message was accepted or delivered.")
    return Section("traffic", "Traffic", lead, plots, [table])


def _backlog(facts: Facts) -> list[Plot]:
    known = {facts.grid.clamped(row["slot"]): row["waiting"] for row in facts.rows("backlog")}
    waiting, now = list[int](), 0
    for step in range(facts.grid.steps):
        now = known.get(step, now)
        waiting.append(max(now, 0))
    if not any(waiting):
        return []
    words = f"{_most(facts, waiting, 'messages')}; {waiting[-1]} at the end"
    svg = over_time(
        "backlog", f"Incomplete messages: {words}.", "messages", facts.grid, {"incomplete": waiting}, None,
        facts.restarts,
    )  # fmt: skip
    return [
        Plot(svg, "Messages of this date that were accepted but not yet complete: a recipient was offline or slow.")
    ]


def _sizes(facts: Facts) -> list[Plot]:
    found = {row["up_to_bytes"]: row["messages"] for row in facts.rows("sizes")}
    bounds = [*BOUNDS_BYTES, None]
    if not found:
        return []
    places = [bounds.index(bound) for bound in found]
    shown = {
        "more" if bound is None else bytes_words(bound): found.get(bound, 0)
        for bound in bounds[min(places) : max(places) + 1]
    }
    most = max(shown, key=lambda words: shown[words])
    svg = bars("sizes", f"Messages by payload size: most up to {most}.", "messages", "payload up to", shown)
    return [Plot(svg, "Messages by payload size. Each bar covers the range above the previous bar.")]


def _shards(facts: Facts) -> list[Plot]:
    rows = facts.rows("shards")
    if not rows:
        return []
    loads = {str(row["shard"]): row["instructions"] for row in rows}
    most = max(loads, key=lambda shard: loads[shard])
    svg = bars(
        "shards",
        f"Instructions by shard: shard {most} has the most, {loads[most]}.",
        "instructions",
        "shard",
        loads,
        False,
    )
    return [Plot(svg, "Instructions by shard. Similar bars mean that the load is evenly spread.")]


def days(facts: Facts) -> Section:
    """Comparison with earlier dates."""
    rows = facts.rows("days")
    table = PageTable(
        "By date",
        ["date, UTC", "messages", "payload, bytes", "deliveries", "lost", "delivery p50, ms", "p99, ms"],
        [
            [Cell(str(row["date"]), "time"), counted, number(row["bytes"]),
             *(number(row[name]) for name in ("deliveries", "lost", "p50", "p99"))]
            for row, counted in ranked(rows, "messages")
        ],
        "no message was accepted.",
    )  # fmt: skip
    lead = (
        f"This date and the {EARLIER_DAYS} before it, if they had messages. Lost deliveries were dropped, expired, or "
        "ended with the session. Percentiles are estimates over all deliveries by instruction."
    )
    return Section("days", "Earlier dates", lead, tables=[table])


def talkers(facts: Facts) -> Section:
    rows = facts.rows("talkers")
    by_bytes = sorted(rows, key=lambda row: int(row["by_bytes"]))
    tables = [
        _talkers("By messages", rows[: facts.top], "messages", "bytes"),
        _talkers("By bytes of payload", by_bytes[: facts.top], "bytes", "messages"),
    ]
    lead = f"{facts.totals['senders']} clients published messages, {facts.totals['recipients']} received messages."
    return Section("talkers", "Busiest publishers", lead, tables=tables)


def topics(facts: Facts) -> Section:
    rows = facts.rows("topics")
    table = PageTable(
        "Topics by messages",
        ["topic", "messages", "bytes", "deliveries", "deliveries per message"],
        [
            [_topic(row), counted, number(row["bytes"]), number(row["deliveries"]), number(row["fan_out"])]
            for row, counted in ranked(rows, "messages")
        ],
        "no message was accepted.",
    )
    lead = (
        "By the first two topic levels, which routing uses. All inboxes are one row. Deliveries are those of this date."
    )
    return Section("topics", "Top topics", lead, tables=[table])


def fan_outs(facts: Facts) -> Section:
    rows = facts.rows("fan_outs")
    table = PageTable(
        "Messages by deliveries",
        ["message", "from", "to", "appended, UTC", "deliveries"],
        [
            [
                name(row["message_id"]),
                name(row["source"]),
                name(row["destination"]),
                moment(row["appended"]),
                copies,
            ]
            for row, copies in ranked(rows, "copies")
        ],
        "no message was delivered.",
    )
    lead = "Deliveries on this date. A message without a sender is from an earlier date, or was retained."
    return Section("fan-outs", "Largest fan-outs", lead, tables=[table])


def _talkers(caption: str, rows: Sequence[Row], by: str, other: str) -> PageTable:
    return PageTable(
        caption,
        ["client", by, other],
        [[name(row["source"]), bar, number(row[other])] for row, bar in ranked(rows, by)],
        "no client published.",
    )


def _topic(row: Row) -> Cell:
    if row["level_1"] == INBOXES:
        return Cell("inboxes (@…)")
    return name(row["level_1"] + ("" if row["level_2"] is None else f"/{row['level_2']}"))


def _most(facts: Facts, values: Sequence[float], unit: str) -> str:
    greatest = max(values)
    return f"at most {plain_number(greatest)} {unit}, at {facts.grid.at(values.index(greatest)):%H:%M:%S}"
