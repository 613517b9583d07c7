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
                f"Messages accepted and copies delivered per {step}: {_most(facts, messages, 'messages')}; "
                f"{_most(facts, copies, 'copies')}.",
                f"messages per {step}",
                grid,
                by_qos,
                {"copies delivered": copies},
                facts.restarts,
            ),
            f"Messages accepted per {step}, by QoS, and copies delivered.",
        ),
        Plot(
            over_time(
                "bytes",
                f"Payload accepted per {step}: {_most(facts, size, 'bytes')}.",
                f"bytes per {step}",
                grid,
                {"bytes": size},
            ),
            f"Bytes of payload accepted per {step}.",
        ),
        *_backlog(facts),
        *_sizes(facts),
        *_shards(facts),
    ]
    table = PageTable(
        f"Traffic by {grid.row_words}",
        ["begins, UTC", *by_qos, "messages", "bytes", "copies delivered"],
        [
            [Cell(grid.row_at(row)), *map(number, values)]
            for row, values in enumerate(zip(*map(grid.by_row, columns), strict=True))
            if any(values)
        ],
        "",
    )
    own = facts.rows("left_out")[0]["messages"]
    lead = "Messages by their append time; copies by when their delivery was reported. Rows without any are left out."
    if own:
        lead += f" The platform's own messages, which tell who comes and goes, do not count on this page: {own}."
    if not any(messages) and not any(copies):
        return Section("traffic", "Traffic", "No message was accepted, and none delivered.")
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
        "backlog", f"Messages not complete: {words}.", "messages", facts.grid, {"not complete": waiting}, None,
        facts.restarts,
    )  # fmt: skip
    return [Plot(svg, "Messages of the date that are accepted and not complete: somebody is away, or slow.")]


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
    svg = bars("sizes", f"Messages by size of payload: most up to {most}.", "messages", "payload up to", shown)
    return [Plot(svg, "Messages by the size of their payload; each bar begins where the one before ends.")]


def _shards(facts: Facts) -> list[Plot]:
    rows = facts.rows("shards")
    if not rows:
        return []
    loads = {str(row["shard"]): row["instructions"] for row in rows}
    most = max(loads, key=lambda shard: loads[shard])
    svg = bars(
        "shards", f"Instructions by shard: most, {loads[most]}, to {most}.", "instructions", "shard", loads, False
    )
    return [Plot(svg, "Instructions by shard, of which each hosts a part of the clients: the load is even, or is not.")]


def days(facts: Facts) -> Section:
    """Comparison with earlier dates."""
    rows = facts.rows("days")
    table = PageTable(
        "By date",
        ["date, UTC", "messages", "payload, bytes", "copies delivered", "copies lost", "delivery p50, ms", "p99, ms"],
        [
            [Cell(str(row["date"]), "time"), counted, number(row["bytes"]),
             *(number(row[name]) for name in ("deliveries", "lost", "p50", "p99"))]
            for row, counted in ranked(rows, "messages")
        ],
        "No message was accepted.",
    )  # fmt: skip
    lead = (
        f"The date and the {EARLIER_DAYS} before it, as far as they had messages. Lost are copies dropped, expired or "
        "ended. Percentiles are of all deliveries by instruction, and estimated here."
    )
    return Section("days", "Beside earlier dates", lead, tables=[table])


def talkers(facts: Facts) -> Section:
    rows = facts.rows("talkers")
    by_bytes = sorted(rows, key=lambda row: int(row["by_bytes"]))
    tables = [
        _talkers("By messages", rows[: facts.top], "messages", "bytes"),
        _talkers("By bytes of payload", by_bytes[: facts.top], "bytes", "messages"),
    ]
    lead = f"{facts.totals['senders']} clients have published, {facts.totals['recipients']} have received."
    return Section("talkers", "Top talkers", lead, tables=tables)


def topics(facts: Facts) -> Section:
    rows = facts.rows("topics")
    table = PageTable(
        "Topics by messages",
        ["topic", "messages", "bytes", "copies delivered", "copies a message"],
        [
            [_topic(row), counted, number(row["bytes"]), number(row["deliveries"]), number(row["fan_out"])]
            for row, counted in ranked(rows, "messages")
        ],
        "No message was accepted.",
    )
    lead = "By the two leading levels, which routes go by; all inboxes are one line. Copies are those of the date."
    return Section("topics", "Top topics", lead, tables=[table])


def fan_outs(facts: Facts) -> Section:
    rows = facts.rows("fan_outs")
    table = PageTable(
        "Messages by copies delivered",
        ["message", "from", "to", "appended, UTC", "copies delivered"],
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
        "Nothing was delivered.",
    )
    lead = "Copies delivered on the date. A message without sender is of an earlier date, or a retained one."
    return Section("fan-outs", "Widest fan-outs", lead, tables=[table])


def _talkers(caption: str, rows: Sequence[Row], by: str, other: str) -> PageTable:
    return PageTable(
        caption,
        ["client", by, other],
        [[name(row["source"]), bar, number(row[other])] for row, bar in ranked(rows, by)],
        "No client has published.",
    )


def _topic(row: Row) -> Cell:
    if row["level_1"] == INBOXES:
        return Cell("inboxes (@…)")
    return name(row["level_1"] + ("" if row["level_2"] is None else f"/{row['level_2']}"))


def _most(facts: Facts, values: Sequence[float], unit: str) -> str:
    greatest = max(values)
    return f"at most {plain_number(greatest)} {unit}, at {facts.grid.at(values.index(greatest)):%H:%M:%S}"
