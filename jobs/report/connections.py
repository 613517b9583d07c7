"""The section on sessions: who was connected, for how long, and how it ended."""

from jobs.report.facts import Facts
from jobs.report.parts import Cell, PageTable, Plot, Section, moment, name, number, ranked
from jobs.report.plots import over_time, side_by_side
from jobs.report.svg import SERIES

EVENTS = {"connected": "connects", "disconnected": "disconnects", "lost": "lost"}
"""Events, and the headings for their numbers."""
COLORS = {"connects": SERIES[0], "disconnects": SERIES[2], "lost": SERIES[3]}
LASTED, UNREPORTED = "still connected at the end of the date", "unknown: its gateway was lost"


def connections(facts: Facts) -> Section:
    ends = facts.rows("ends")
    if not ends:
        return Section("sessions", "Sessions", "No client was connected.")
    grid, going = facts.grid, facts.rows("comings_and_goings")
    most, at_end = _connected(facts)
    events = {words: grid.filled((row["slot"], row[event]) for row in going) for event, words in EVENTS.items()}
    by_row = [[*values] for values in zip(*map(grid.by_row, events.values()), strict=True)]
    plots = [
        Plot(
            over_time(
                "connected",
                f"Maximum of connected clients per {grid.step_words}: {max(most)} at the peak, "
                f"{at_end[-1]} at the end.",
                "clients",
                grid,
                {"connected": most},
                None,
                facts.restarts,
            ),
            f"Connected clients, maximum per {grid.step_words}.",
        ),
        Plot(
            side_by_side(
                "comings",
                f"Connects, disconnects and lost connections per {grid.row_words}; in total "
                + ", ".join(f"{number(sum(values)).text} {words}" for words, values in events.items())
                + ".",
                f"connections per {grid.row_words}",
                grid.of_rows(),
                {words: (COLORS[words], grid.by_row(values)) for words, values in events.items()},
            ),
            f"Connects, disconnects and lost connections per {grid.row_words}.",
        ),
    ]
    tables = [
        PageTable(
            f"Connects and disconnects per {grid.row_words}",
            ["from, UTC", *EVENTS.values(), "connected at the end"],
            [
                [Cell(grid.row_at(row)), *map(number, values), number(left)]
                for row, (values, left) in enumerate(zip(by_row, grid.at_row_ends(at_end), strict=True))
                if any(values)
            ],
            "none.",
        ),
        _ends(facts),
        _longest(facts),
    ]
    lead = (
        "Times are from the gateway's clock. Lost: the connection ended without DISCONNECT. Durations cover the "
        "connections that ended on this date. For a lost gateway (gateway_lost) the end is when its loss was noticed."
    )
    return Section("sessions", "Sessions", lead, plots, tables)


def _connected(facts: Facts) -> tuple[list[int], list[int]]:
    """For each step: the maximum of connected clients, and the number at its end."""
    changed = {facts.grid.clamped(row["slot"]): row for row in facts.rows("connected")}
    most, at_end, now = [], [], 0
    for step in range(facts.grid.steps):
        row = changed.get(step)
        most.append(max(now, row["most"] if row else now))
        now = row["at_end"] if row else now
        at_end.append(now)
    return most, at_end


def _ends(facts: Facts) -> PageTable:
    rows = facts.rows("ends")
    return PageTable(
        "How connections ended",
        ["how", "reason", "connections", "median duration, s"],
        [
            [Cell(_how(row["how"])), name(row["reason"]), counted, number(row["median_s"])]
            for row, counted in ranked(rows, "connections")
        ],
        "",
    )


def _longest(facts: Facts) -> PageTable:
    rows = facts.rows("longest_connections")
    return PageTable(
        "Longest connections",
        ["client", "user", "protocol", "gateway", "connected, UTC", "ended, UTC", "reason", "duration, s"],
        [
            [
                *(name(row[column]) for column in ("client", "user", "protocol", "gateway")),
                moment(row["connected"]),
                moment(row["ended"]),
                name(row["reason"]),
                seconds,
            ]
            for row, seconds in ranked(rows, "seconds")
        ],
        "the duration of no connection is known.",
    )


def _how(how: str | None) -> str:
    return LASTED if how is None else UNREPORTED if how == "unreported" else how
