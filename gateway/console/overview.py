"""The first page: traffic of the last minutes, latency by stage, what waits, health by part, and all gateways."""

from collections.abc import Callable, Mapping, Sequence
from math import isinf
from typing import NamedTuple

from gateway.console.history import History, Percentiles, Sample
from gateway.console.parts import UNKNOWN, Cell, Page, Plot, Section, Table, name
from gateway.console.plots import plot
from gateway.console.text import age, bytes_words, number, plain_number, seconds_words
from gateway.members.table import GatewayMember, Status
from gateway.observe.session_stats import SessionStats
from gateway.shard.spool import SpoolSize
from schemas.members import CONSOLE

PATH = "/console"
STAGES = {
    "produce": "message to Kafka, until it is stored",
    "checkpoint": "checkpoint, until the spool has it",
    "loop": "event loop behind time",
}
"""What this process measures: the key in :class:`Sample`, and what it means."""


class Member(NamedTuple):
    """A gateway of the site; `age_s` of its last heartbeat, None if it was there before this process."""

    member: GatewayMember
    status: Status
    age_s: float | None


class Held(NamedTuple):
    """In a cluster: how many shards a gateway owns, of how many it is a standby, and where its console is, "" if it
    does not say."""

    owned: int
    followed: int
    console: str


class OverviewFacts(NamedTuple):
    """`parts`: the fault of each part, "" if it has none. `kafka_errors`: by librdkafka's name. `held`: by the member's
    name; None if gateways do not share the shards."""

    gateway: str
    parts: Mapping[str, str]
    stats: SessionStats
    history: History
    spool: SpoolSize
    retained: int
    in_flight: int
    waiting_bytes: int
    brokers_up: int
    kafka_errors: Mapping[str, float]
    members: Sequence[Member]
    held: Mapping[str, Held] | None = None


def page(facts: OverviewFacts) -> Page:
    stats, spool = facts.stats, facts.spool
    now = {
        "connected": plain_number(stats.connected),
        "offline sessions": plain_number(stats.offline),
        "subscriptions": plain_number(stats.subscriptions),
        "messages queued": plain_number(stats.queued_messages),
        "bytes queued": bytes_words(stats.queued_bytes),
        "unacknowledged": plain_number(stats.unacknowledged),
        "rows in the spool": plain_number(spool.rows),
        "spool on disk": bytes_words(spool.file_bytes),
        "retained messages": plain_number(facts.retained),
    }
    return Page(
        PATH,
        "Overview",
        (
            Section("Now", figures=tuple(now.items())),
            Section("Traffic", _traffic_lead(facts.history), plots=_plots(facts.history)),
            Section(
                "Latency",
                "What this process measures, in the same time. How long routing and delivery took is in the ledger: "
                "the command waystation report makes a page of a date.",
                tables=[_latency(facts.history)],
            ),
            Section("Health", tables=[_health(facts.parts), _kafka(facts)]),
            Section(
                "Gateways",
                "All gateways of the site, as their heartbeats on Kafka say.",
                tables=[_members(facts.gateway, facts.members, facts.held)],
            ),
        ),
    )


def _traffic_lead(history: History) -> str:
    kept = f"The last {age(history.span_s)} of this process" if len(history) > 1 else "Nothing measured yet"
    return f"{kept}; at most five minutes are kept. Point at a plot to read its values."


def _plots(history: History) -> list[Plot]:
    publishes = {"PUBLISH in": _received, "PUBLISH out": _sent}
    plots = [
        plot(title, [(f"QoS {qos}", history.rates(_of_qos(totals, qos))) for qos in range(3)], _per_second, "/s")
        for title, totals in publishes.items()
    ]
    traffic = [
        ("in", history.rates(lambda sample: sample.bytes_received)),
        ("out", history.rates(lambda sample: sample.bytes_sent)),
    ]
    return [
        *plots,
        plot("Bytes", traffic, lambda value: f"{bytes_words(value)}/s", " bytes/s"),
        plot("Refusals", [("refused", history.rates(lambda sample: sample.refused))], _per_second, "/s"),
        plot("Connections", [("open", history.values(lambda sample: sample.connections))], plain_number),
        plot("In flight to Kafka", [("records", history.values(lambda sample: sample.in_flight))], plain_number),
        plot("Processor", [("cores", history.rates(lambda sample: sample.cpu_s))], lambda value: f"{value:.2f}"),
    ]


def _received(sample: Sample) -> Sequence[int]:
    return sample.received


def _sent(sample: Sample) -> Sequence[int]:
    return sample.sent


def _of_qos(totals: Callable[[Sample], Sequence[int]], qos: int) -> Callable[[Sample], float]:
    return lambda sample: totals(sample)[qos]


def _per_second(value: float) -> str:
    return f"{plain_number(value)}/s"


def _latency(history: History) -> Table:
    rows = [_stage(meaning, history.percentiles(stage)) for stage, meaning in STAGES.items()]
    return Table("Stages", ("stage", "p50 at most", "p99 at most", "measured"), rows, "")


def _stage(meaning: str, found: Percentiles) -> tuple[Cell, ...]:
    return (Cell(meaning), _bound(found.p50), _bound(found.p99), number(found.observed))


def _bound(seconds: float | None) -> Cell:
    if seconds is None:
        return Cell(UNKNOWN, "number")
    return Cell("longer than is measured" if isinf(seconds) else seconds_words(seconds), "number")


def _health(parts: Mapping[str, str]) -> Table:
    rows = [(Cell(part), Cell(fault, "bad") if fault else Cell("ok", "good")) for part, fault in parts.items()]
    return Table("Parts", ("part", "state"), rows, "")


def _kafka(facts: OverviewFacts) -> Table:
    errors = {code: count for code, count in facts.kafka_errors.items() if count}
    rows = [
        (Cell("brokers connected"), number(facts.brokers_up)),
        (Cell("records in flight"), number(facts.in_flight)),
        (Cell("bytes not sent yet"), Cell(bytes_words(facts.waiting_bytes), "number")),
        *((Cell(f"errors {code}"), number(count)) for code, count in sorted(errors.items())),
    ]
    return Table("Kafka client", ("figure", "value"), rows, "")


def _members(gateway: str, members: Sequence[Member], held: Mapping[str, Held] | None) -> Table:
    of_shards = () if held is None else ("shards", "standby of")
    headings = ("name", "state", "zone", *of_shards, "connections", "cores", "memory", "heartbeat", "addresses")
    rows = [
        _member(gateway, one, None if held is None else held.get(one.member.name, Held(0, 0, "")))
        for one in sorted(members, key=lambda one: one.member.name)
    ]
    return Table("Gateways", headings, rows, "no heartbeat read yet")


def _member(gateway: str, one: Member, held: Held | None) -> tuple[Cell, ...]:
    record, load = one.member.record, one.member.record.load
    bearers = [(bearer, at) for bearer, at in sorted(record.addresses.items()) if bearer != CONSOLE]
    own = " (this one)" if one.member.name == gateway else ""
    named = name(one.member.name, "" if held is None else held.console)
    return (
        named._replace(text=named.text + own),
        Cell(one.status, "good" if one.status == "up" else "bad" if one.status == "silent" else "text"),
        name(record.zone),
        *(() if held is None else (number(held.owned), number(held.followed))),
        number(load.connections),
        Cell(f"{load.cpu:.2f}", "number"),
        Cell(f"{bytes_words(load.memory_bytes)} ({load.memory:.0%})", "number"),
        Cell(UNKNOWN if one.age_s is None else f"{age(one.age_s)} ago", "time"),
        name(", ".join(f"{bearer} {at.address}:{at.port}" for bearer, at in bearers))._replace(kind="text"),  # wraps
    )
