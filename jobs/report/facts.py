"""The facts about one date: the results of the queries in `jobs/report/report.sql`, by name.

A row belongs to the date of its own append time, as in the tables: a message of 23:59 that is completed a minute later
is a message of one date and a completion of the next. So a date's figures do not change once it is over and the ledger
is complete, except for the messages still waiting, and how long connections lasted.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from jobs.quality.contents import Day
from jobs.query.ledger_reader import Dates, LedgerReader, Memory, installed_blocks, installed_views
from jobs.report.grid import Grid, bounds_us, grid_over, to_us, utc
from jobs.report.parts import Row

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
BOUNDS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(SECOND_MS, 2 * SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS),
    *(MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS),
)
"""Bounds of the distribution of completion times."""
BOUNDS_BYTES = (0, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
"""Bounds of the distribution of sizes."""
EARLIER_DAYS = 7
"""Number of earlier dates shown for comparison."""


VIEWS = ("topic_traffic", "feed_messages", "feed_gaps", "feed_health")


@dataclass(frozen=True)
class Facts:
    """`results` by the name of their query, over `grid`; `until`: the newest row of the date, UTC; `top`: maximum rows
    of a ranking."""

    date: date
    grid: Grid
    until: datetime
    top: int
    results: Mapping[str, list[Row]]

    def rows(self, query: str) -> list[Row]:
        return self.results[query]

    def as_json(self) -> Row:
        """Everything, for :mod:`json`; a `slot` counts steps of `step_s` from `begin`."""
        return {
            "date": self.date,
            "begin": self.grid.at(0),
            "step_s": self.grid.step_us / 1e6,
            "steps": self.grid.steps,
            "until": self.until,
            **self.results,
        }

    @property
    def restarts(self) -> list[int]:
        """Steps of the grid in which a gateway was found lost, or restarted."""
        return sorted({self.grid.clamped(row["slot"]) for row in self.rows("restarts")})

    @property
    def totals(self) -> Row:
        return self.results["totals"][0]


def read_facts(tables: str, day: date, seen: Day, top: int, memory: Memory) -> Facts:
    """All facts about a date; `seen` is what the tables' logs say about it. Raises QueryError."""
    begin_us, end_us = bounds_us(day)
    until = utc(seen.newest or datetime.combine(day, time.max))
    grid = grid_over(day, utc(seen.oldest or datetime.combine(day, time.min)), until)
    slots = (grid.begin_us, grid.step_us)
    views = {name: sql for name, sql in installed_views().items() if name in VIEWS}
    with closing(LedgerReader(tables, views, Dates(day, day), memory)) as reader:
        of_date = _Asked(reader)
        for name in (
            "is_platform",
            "platform",
            "user_messages",
            "user_instructions",
            "user_outcomes",
            "user_completions",
        ):
            of_date.make(name)
        of_date.make("latencies", *slots)
        of_date.ask("completion_times", list(BOUNDS_MS))
        of_date.ask("sizes", list(BOUNDS_BYTES))
        of_date.ask("backlog", *slots, begin_us)
        for name in ("traffic", "deliveries", "undelivered", "restarts"):
            of_date.ask(name, *slots)
        for name in ("talkers", "topics", "fan_outs", "losses", "flagged", "quarantined", "slowest_clients"):
            of_date.ask(name, top)
        for name in ("feed_lags", "feed_missing"):
            of_date.ask(name, *slots)
        for name in ("feeds", "feed_lost"):
            of_date.ask(name, top)
        for name in ("totals", "left_out", "outcomes", "latency", "routing", "shards", "stages", "expectations"):
            of_date.ask(name)
    with closing(LedgerReader(tables, {}, Dates(day), memory)) as reader:
        since = _Asked(reader)
        since.make("is_platform")
        since.ask("waiting", day, top)
        since.make("connections", begin_us, end_us)
        since.ask("connected", *slots, end_us)
        since.ask("comings_and_goings", *slots, begin_us, end_us)
        since.ask("longest_connections", top, to_us(until))
        since.ask("ends", end_us)
    with closing(LedgerReader(tables, {}, Dates(day - timedelta(EARLIER_DAYS), day), memory)) as reader:
        earlier = _Asked(reader)
        earlier.make("is_platform")
        earlier.ask("days")
    return Facts(day, grid, until, top, of_date.results | since.results | earlier.results)


class _Asked:
    """Runs queries and collects their results by name."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        self._blocks = installed_blocks("jobs.report", "report.sql")
        self.results: dict[str, list[Row]] = {}

    def make(self, table: str, *parameters: Any) -> None:
        """Creates a temporary table for later queries."""
        self._reader.query(self._blocks[f"make_{table}"], parameters)

    def ask(self, name: str, *parameters: Any) -> None:
        found = self._reader.query(self._blocks[name], parameters)
        self.results[name] = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
