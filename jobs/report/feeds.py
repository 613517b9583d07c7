"""The section on redundant feeds: what each slot lacks, how far apart the two are. Dates without feeds have none."""

from jobs.report.facts import Facts
from jobs.report.parts import Cell, PageTable, Plot, Row, Section, moment, name, number
from jobs.report.plots import over_time, percentiles_over_time

SLOTS = {"active": "missing in the active", "backup": "missing in the backup", "both": "in neither"}
PERCENTILES = ("p50", "p90", "p99")


def feeds(facts: Facts) -> Section | None:
    rows = facts.rows("feeds")
    if not rows:
        return None
    lead = (
        "Two adapters publish the same source streams, each in its own slot. A number is missing if the slot has "
        "passed it without bringing a copy; what neither slot has is lost. Times are append times of the broker."
    )
    return Section(
        "feeds", "Redundant feeds", lead, [*_missing(facts), *_lags(facts)], [_slots(rows), _lost(facts)],
        [f"Feed {row['feed']}: {row['lost_in_both']} numbers are in neither slot." for row in rows
         if row["lost_in_both"] and row["slot"] == "active"],
    )  # fmt: skip


def _missing(facts: Facts) -> list[Plot]:
    found, grid = facts.rows("feed_missing"), facts.grid
    if not found:
        return []
    layers = {
        words: grid.filled((row["slot"], row["numbers"]) for row in found if row["feed_slot"] == slot)
        for slot, words in SLOTS.items()
    }
    words = ", ".join(f"{sum(values):.0f} {layer}" for layer, values in layers.items())
    label = f"Missing numbers of redundant feeds per {grid.step_words}; in total {words}."
    svg = over_time("feed-missing", label, f"numbers per {grid.step_words}", grid, layers, None, facts.restarts)
    return [Plot(svg, "Numbers that a slot passed without bringing a copy. What is in neither counts in each.")]


def _lags(facts: Facts) -> list[Plot]:
    found, grid = facts.rows("feed_lags"), facts.grid
    if not found:
        return []
    by_step = {grid.clamped(row["slot"]): row for row in found}
    values = {
        name: [by_step[step][name] if step in by_step else None for step in range(grid.steps)] for name in PERCENTILES
    }
    greatest = max(row["p99"] for row in found)
    label = f"Milliseconds between the two copies of a message in the course of the day; at most {greatest:g} at p99."
    svg = percentiles_over_time("feed-lags", label, grid, values, facts.restarts)
    return [Plot(svg, "Time between the appends of a message's two copies, whichever came first.")]


def _slots(rows: list[Row]) -> PageTable:
    counts = ("copies", "duplicates", "gaps", "missing", "lost_in_both", "differences")
    return PageTable(
        "Feeds by slot",
        ["feed", "slot", "copies", "duplicates", "gaps", "missing numbers", "in neither", "different",
         "lag p50, ms", "lag p99, ms", "last record, UTC"],
        [
            [name(row["feed"]), Cell(row["slot"]), *(number(row[count]) for count in counts),
             number(row["p50_lag_ms"]), number(row["p99_lag_ms"]), moment(row["last_appended"])]
            for row in rows
        ],
        "",
    )  # fmt: skip


def _lost(facts: Facts) -> PageTable:
    return PageTable(
        "Longest ranges that are in neither slot",
        ["feed", "source stream", "first", "last", "numbers", "since, UTC"],
        [
            [name(row["feed"]), name(row["stream"]), number(row["first_number"]), number(row["last_number"]),
             number(row["numbers"]), moment(row["opened"])]
            for row in facts.rows("feed_lost")
        ],
        "nothing is missing in both slots.",
    )  # fmt: skip
