"""Routers and the ledger: their readiness and their queries, as they said it themselves when they were asked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.console.parts import ROWS, UNKNOWN, Cell, Page, Section, Table, name
from gateway.console.text import age, number, seconds_words
from schemas.settings import Settings

PATH = "/console/applications"
LEDGER = "Ledger"
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}

TRIGGER = "waystation_query_trigger_seconds"
LAG = "waystation_query_lag_records"
RATE = "waystation_query_rows_per_second"
FRESHNESS = "waystation_query_freshness_seconds"
HEARD = "waystation_query_last_progress_timestamp_seconds"
FAILURES = "waystation_query_failures_total"
BATCH_SUM = "waystation_query_batch_seconds_sum"
BATCH_COUNT = "waystation_query_batch_seconds_count"
PAUSE_SUM = "waystation_router_pause_seconds_sum"
PAUSE_COUNT = "waystation_router_pause_seconds_count"
SAMPLES = (TRIGGER, LAG, RATE, FRESHNESS, HEARD, FAILURES, BATCH_SUM, BATCH_COUNT, PAUSE_SUM, PAUSE_COUNT)
"""What a page asks for (:mod:`jobs.observe.query_metrics`, :mod:`jobs.observe.routing`)."""


class Place(NamedTuple):
    """An application: what it is called here, and `host:port` of its metrics."""

    title: str
    address: str


class Answer(NamedTuple):
    """What an application said: the fault of each part ("" if it has none), and samples by name and query, the largest
    of those with further labels. `fault`: why there is no answer, "" if there is."""

    faults: Mapping[str, str]
    samples: Mapping[tuple[str, str], float]
    fault: str = ""


def places(settings: Settings) -> list[Place]:
    """Those of `gateway.console.applications`, or else where `[router]` and `[ledger]` say that they serve metrics."""
    configured = settings.gateway.console.applications
    if configured:
        return [Place(f"Application at {address}", address) for address in configured]
    router, ledger = settings.router, settings.ledger
    found = [
        ("Routers" if settings.stack.router_processes == 1 else "Router", router.metrics_host, router.metrics_port)
    ]
    if settings.stack.router_processes > 1:
        found.append(("Router, backup", router.metrics_host, router.backup_metrics_port))
    found.append((LEDGER, ledger.metrics_host, ledger.metrics_port))
    return [Place(title, _address(host, port)) for title, host, port in found]


def ledger_places(settings: Settings) -> list[Place]:
    """Where the ledger may be: of `gateway.console.applications` nobody knows which of them it is."""
    found = places(settings)
    return found if settings.gateway.console.applications else [place for place in found if place.title == LEDGER]


def _address(host: str, port: int) -> str:
    """Port 0 is any free one, which only the application knows."""
    host = _ANY_HOST.get(host, host)
    return "" if not port else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def page(answers: Sequence[tuple[Place, Answer, float]], now: float) -> Page:
    """Each application with its answer and the answer's age in seconds; `now` in seconds since the epoch."""
    return Page(PATH, "Routers and ledger", [_section(place, answer, aged, now) for place, answer, aged in answers])


_HEADINGS = (
    "query",
    "state",
    "batch, mean",
    "trigger",
    "lag",
    "rows/s",
    "freshness",
    "failures",
    "last progress",
)

_PAUSE_AT = _HEADINGS.index("trigger")
"""Of an application that routes, the column with pauses comes before this one."""


def _section(place: Place, answer: Answer, aged: float, now: float) -> Section:
    where = f"Asked at {place.address} {age(aged)} ago." if place.address else ""
    if answer.fault:
        return Section(place.title, where, notes=[f"No answer: {answer.fault}"])
    parts = [(name(part), _state(fault)) for part, fault in list(answer.faults.items())[:ROWS] if part == "application"]
    queries = sorted({*answer.faults, *(query for _, query in answer.samples)} - {"application"})[:ROWS]
    pauses = any(metric == PAUSE_COUNT for metric, _ in answer.samples)
    rows = [_row(query, answer, now, pauses) for query in queries]
    tables = [Table("Application", ("part", "state"), parts, "it says nothing of itself")]
    tables.append(Table("Streaming queries", _headings(pauses), rows, "no query yet"))
    pause = "Pause: of a router between two batches, when its peer routes; the mean likewise. " if pauses else ""
    lead = (
        f"Batch: the mean of all since the query's process started. {pause}"
        "Lag: of the topic that the query is furthest behind."
    )
    return Section(place.title, f"{where} {lead}", tables=tables)


def _headings(pauses: bool) -> tuple[str, ...]:
    return (*_HEADINGS[:_PAUSE_AT], *(["pause, mean"] if pauses else ()), *_HEADINGS[_PAUSE_AT:])


def _row(query: str, answer: Answer, now: float, pauses: bool) -> tuple[Cell, ...]:
    def sample(metric: str) -> float | None:
        return answer.samples.get((metric, query))

    def mean(total: str, count: str) -> float | None:
        summed, counted = sample(total), sample(count)
        return summed / counted if counted and summed is not None else None

    heard = sample(HEARD)
    return (
        name(query),
        _state(answer.faults.get(query, "")),
        _seconds(mean(BATCH_SUM, BATCH_COUNT)),
        *([_seconds(mean(PAUSE_SUM, PAUSE_COUNT))] if pauses else ()),
        _seconds(sample(TRIGGER)),
        number(sample(LAG)),
        number(sample(RATE)),
        _seconds(sample(FRESHNESS)),
        number(sample(FAILURES)),
        Cell(f"{age(now - heard)} ago" if heard else UNKNOWN, "time"),
    )


def _seconds(value: float | None) -> Cell:
    return Cell(UNKNOWN if value is None else seconds_words(value), "number")


def _state(fault: str) -> Cell:
    return name(fault)._replace(kind="bad") if fault else Cell("ok", "good")
