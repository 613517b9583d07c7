"""The section on sessions: who was connected, for how long, and how it ended."""

from jobs.report.facts import Facts
from jobs.report.parts import Cell, PageTable, Plot, Section, moment, name, number, ranked
from jobs.report.plots import over_time, side_by_side
from jobs.report.svg import SERIES

EVENTS = {"connected": "connects", "disconnected": "disconnects", "lost": "lost"}
"""Events, and the headings for their numbers."""
COLORS = {"connects": SERIES[0], "disconnects": SERIES[2], "lost": SERIES[3]}
LASTED, UNREPORTED = "still connected at the end of the date", "nobody reported how: its gateway was lost"


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
                f"Clients connected at most in each {grid.step_words}: {max(most)} at the peak, "
                f"{at_end[-1]} at the end.",
                "clients",
                grid,
                {"connected": most},
                None,
                facts.restarts,
            ),
            f"Clients connected, at most in each {grid.step_words}.",
        ),
        Plot(
            side_by_side(
                "comings",
                f"Connects, disconnects and lost connections per {grid.row_words}: "
                + ", ".join(f"{number(sum(values)).text} {words}" for words, values in events.items())
                + " in all.",
                f"connections per {grid.row_words}",
                grid.of_rows(),
                {words: (COLORS[words], grid.by_row(values)) for words, values in events.items()},
            ),
            f"Connects, disconnects and lost connections per {grid.row_words}, beside each other.",
        ),
    ]
    tables = [
        PageTable(
            f"Comings and goings by {grid.row_words}",
            ["begins, UTC", *EVENTS.values(), "connected at its end"],
            [
                [Cell(grid.row_at(row)), *map(number, values), number(left)]
                for row, (values, left) in enumerate(zip(by_row, grid.at_row_ends(at_end), strict=True))
                if any(values)
            ],
            "Nobody came or went.",
        ),
        _ends(facts),
        _longest(facts),
    ]
    lead = (
        "A connection begins and ends by its gateway's clock. Lost: the client did not say goodbye. How long: of those "
        "that ended on the date. Of a gateway that was lost (`gateway_lost`) the ledger says when that was found."
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
        ["how", "reason", "connections", "median, seconds"],
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
        ["client", "user", "protocol", "gateway", "connected, UTC", "ended, UTC", "reason", "seconds"],
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
        "Of no connection it is known how long it lasted.",
    )


def _how(how: str | None) -> str:
    return LASTED if how is None else UNREPORTED if how == "unreported" else how
