"""Sections on traffic: over the day, its clients and topics, and what went furthest."""

from collections.abc import Sequence

from jobs.report.facts import Facts
from jobs.report.parts import Cell, PageTable, Plot, Row, Section, moment, name, number, plain_number, ranked
from jobs.report.plots import over_time

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
                f"per {step}",
                grid,
                by_qos,
                {"copies delivered": copies},
            ),
            f"Messages accepted per {step}, by QoS, and copies delivered.",
        ),
        Plot(
            over_time(
                "bytes", f"Payload accepted per {step}: {_most(facts, size, 'bytes')}.", "bytes", grid, {"bytes": size}
            ),
            f"Bytes of payload accepted per {step}.",
        ),
    ]
    table = PageTable(
        f"Traffic by {grid.row_words}",
        ["begins, UTC", *by_qos, "messages", "bytes", "copies delivered"],
        [
            [Cell(grid.row_at(row)), *map(number, values)]
            for row, values in enumerate(zip(*map(grid.by_row, columns), strict=True))
        ],
        "",
    )
    lead = "Messages by their append time; copies by when their delivery was reported."
    if not any(messages) and not any(copies):
        return Section("traffic", "Traffic", "No message was accepted, and none delivered.")
    return Section("traffic", "Traffic", lead, plots, [table])


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
