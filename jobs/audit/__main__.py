"""The audit: repeats and compares every message's routing decision (`python -m jobs.audit --date 2026-11-22`).

Prints one JSON object: `since, until` (UTC), `shards`, the number of `messages`, of which `right`, `differs`, `later`
(not judged: beyond the completeness watermark), how many were sent to `everyone`, `kinds` of differences with the
number of messages for each, `examples`, and `watermarks`, until when the tables are complete. Exit status 0 without
differences, 1 with some, 2 if nothing could be audited: then one sentence on standard error, and no report. Only reads.
"""

import argparse
import json
import os
import sys
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.audit.completeness import completeness_watermarks
from jobs.errors import AuditError
from jobs.observe.progress import first_line
from jobs.quality.contents import existing_contents
from jobs.runtime.application import failing_as, run_once
from jobs.runtime.dates import EXAMPLES, parse_date
from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings
from jobs.stack.missing import why_no_tables
from pipelines.routing import audit
from pipelines.routing.audit import Ledger, Period
from pipelines.routing.decisions import DIFFERS, LATER, RIGHT, Instructed, Watermarks, judged, position
from pipelines.routing.route_buckets import in_buckets
from pipelines.sources import read_table
from schemas.envelope import ROUTED
from schemas.settings import Settings
from schemas.tables import INSTRUCTIONS, MESSAGES, OUTCOMES, ROUTES_HISTORY

PART = "audit"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHUFFLE_PARTITIONS = 64
"""For a day of many millions of messages each has some ten MB; Spark merges small ones."""


class Request(NamedTuple):
    period: Period
    examples: int


class Doubts(NamedTuple):
    """The messages not found right: how many `messages`; of these, and of ids without a message, how many `differs` and
    `later`; how many differ in each kind; the first examples."""

    messages: int
    differs: int
    later: int
    kinds: dict[str, int]
    examples: list[dict[str, Any]]


NO_DOUBTS = Doubts(0, 0, 0, {}, [])


def request(arguments: Sequence[str], now: datetime) -> Request:
    """The request on the command line; the default end is `now`. Raises AuditError for an invalid time, and for an
    empty period."""
    parser = argparse.ArgumentParser(prog="jobs.audit", description="Audit the routing decisions of a period.")
    parser.add_argument("--date", default="")
    parser.add_argument("--since", default="")
    parser.add_argument("--until", default="")
    parser.add_argument("--examples", type=int, default=10)
    given = parser.parse_args(arguments)
    if bool(given.date) == bool(given.since):
        raise AuditError("give the period to audit: either --date 2026-11-22 or --since 2026-11-22T08:00")
    if given.date and given.until:
        raise AuditError("--until cannot be used with --date, which is a whole day: use --since and --until")
    if given.date:
        try:
            since = datetime.combine(parse_date(given.date, now.date()), time(), UTC)
        except ValueError as error:
            raise AuditError(f"--date: {error}") from error
        return Request(Period(since, since + timedelta(days=1)), given.examples)
    since = _moment("--since", given.since, now)
    until = _moment("--until", given.until, now) if given.until else now
    if since >= until:
        raise AuditError(f"the period is empty: --since {given.since} must be before {given.until or 'now'}")
    return Request(Period(since, until), given.examples)


def report(spark: SparkSession, tables: str, asked: Request, shards: int, watermarks: Watermarks) -> dict[str, Any]:
    """The report, as described in the module's docstring."""
    period = asked.period
    tables_read = (MESSAGES, ROUTES_HISTORY, INSTRUCTIONS, OUTCOMES)
    ledger = Ledger(*(read_table(spark, tables, table) for table in tables_read))
    messages = ledger.messages.where((F.col("date") >= period.since.date()) & period.holds(F.col("appended")))
    messages = messages.where(F.col("date") <= period.until.date())
    routes = in_buckets(audit.routes_in(period, audit.intervals(ledger.routes_history)))
    routes.rows.persist()
    ids = audit.doubtful(audit.wanted(messages, routes, shards), ledger, period, watermarks).persist()
    doubts = NO_DOUBTS
    if not ids.isEmpty():
        few = ledger._replace(messages=messages).about(ids)
        wanted = audit.wanted(few.messages, routes, shards)
        found = judgements(audit.gathered(wanted, few, period), shards, watermarks)
        doubts = _doubts(found, asked.examples)
    total = messages.count()
    return {
        "since": _text(period.since),
        "until": _text(period.until),
        "shards": shards,
        "messages": total,
        "right": total - doubts.messages,
        "differs": doubts.differs,
        "later": doubts.later,
        "everyone": audit.to_everyone(ledger, period).count(),
        "kinds": doubts.kinds,
        "examples": doubts.examples,
        "watermarks": {name: _text(moment) for name, moment in watermarks._asdict().items()},
    }


def run(settings: Settings, arguments: Sequence[str], now: datetime) -> int:
    """Audit according to `arguments`, and print the report; returns the exit status. Raises AuditError, also if nothing
    was audited."""
    asked = request(arguments, now)
    tables = settings.tables
    if not DeltaTable.is_deltatable(f"{tables}/{MESSAGES.name}"):
        raise AuditError(why_no_tables(tables))
    refuse_if_untouched(tables, asked.period)
    watermarks = completeness_watermarks(tables, settings.audit.patience_s)
    os.nice(settings.stack.ledger_niceness)
    spark = build_session(PART, "local[*]", session_settings(settings))
    try:
        found = report(spark, tables, asked, settings.kafka.shards, watermarks)
    except (PySparkException, Py4JJavaError) as error:
        raise AuditError(f"the audit failed: {first_line(str(getattr(error, 'java_exception', error)))}") from error
    finally:
        spark.stop()
    refuse_if_empty(found)
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
    return 1 if found["differs"] else 0


def refuse_if_untouched(tables: str, period: Period) -> None:
    """Raises AuditError if the ledger has nothing of these days: this is known at once, without starting Spark."""
    contents = existing_contents(tables)
    there = [contents[table.name].days for table in (MESSAGES, INSTRUCTIONS, OUTCOMES) if table.name in contents]
    if not any(period.since.date() <= day <= period.until.date() for days in there for day in days):
        raise _nothing_between(_text(period.since), _text(period.until))


def refuse_if_empty(found: Mapping[str, Any]) -> None:
    """Raises AuditError if nothing was audited: a report without differences would claim that all is well."""
    if found["right"] or found["differs"]:
        return
    if not found["messages"]:
        raise _nothing_between(found["since"], found["until"])
    period = f"between {found['since']} and {found['until']}"
    routes = found["watermarks"]["routes"]
    known = f"the ledger has all route events only until {routes}" if routes else "the ledger has no route events"
    raise AuditError(
        f"none of the {found['messages']:,} messages {period} can be audited yet, because {known}: keep it running, "
        f"and try again in a few minutes"
    )


def _nothing_between(since: str | None, until: str | None) -> AuditError:
    return AuditError(f"the ledger has no messages between {since} and {until}: choose another period")


def session_settings(settings: Settings) -> dict[str, str]:
    """The audit session's settings in addition to :mod:`jobs.runtime.spark_session`; its JVM uses the ledger's
    options."""
    return {
        "spark.driver.memory": settings.audit.heap,
        JAVA_OPTIONS: settings.stack.ledger_java_options,
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        **storage_settings(settings.storage),
    }


def judgements(gathered: DataFrame, shards: int, watermarks: Watermarks) -> Iterator[dict[str, Any]]:
    """The judgement on each row of :func:`pipelines.routing.audit.gathered`, on each copy of its message: `message_id,
    partition, offset, destination, appended, wanted, instructed (list of scope, shard, number, limit), untouched,
    differences (list of kind, scope, shards), verdict`; the terms are those of :mod:`pipelines.routing.decisions`."""
    for found in gathered.toLocalIterator(prefetchPartitions=True):
        row = found.asDict(recursive=True)
        copies = [copy | {"appended": _time(copy["appended"])} for copy in sorted(row["copies"], key=position)]
        in_order = sorted(row["instructions"], key=lambda one: (one["scope"] != ROUTED, one["shard"], one["number"]))
        appended = copies[0]["appended"] if copies else _time(row["appended"])
        untouched = {_time(report) for report in row["reports"]}
        for one in judged(copies, in_order, untouched, appended, shards, watermarks):
            yield {
                "message_id": row["message_id"],
                "appended": appended,
                **(one.copy or dict.fromkeys(("partition", "offset", "destination", "wanted"))),
                "instructed": [{name: each[name] for name in Instructed._fields} for each in one.instructions],
                "untouched": (one.copy["appended"] if one.copy else appended) in untouched,
                "differences": [each._asdict() | {"shards": list(each.shards)} for each in one.judgement.differences],
                "verdict": one.judgement.verdict,
            }


def _doubts(found: Iterable[dict[str, Any]], examples: int) -> Doubts:
    messages, verdicts, kinds, first = 0, Counter[str](), Counter[str](), list[dict[str, Any]]()
    for one in found:
        if one["verdict"] == RIGHT:
            continue
        messages += one["partition"] is not None
        verdicts[one["verdict"]] += 1
        kinds.update({each["kind"] for each in one["differences"]})
        if one["verdict"] == DIFFERS:
            insort(first, one, key=lambda other: (other["appended"], other["message_id"]))
            del first[examples:]
    shown = [one | {"appended": _text(one["appended"])} for one in first]
    return Doubts(messages, verdicts[DIFFERS], verdicts[LATER], dict(sorted(kinds.items())), shown)


def _time(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def _moment(option: str, text: str, now: datetime) -> datetime:
    """A time, or the start of a date."""
    with suppress(ValueError):
        return datetime.combine(parse_date(text, now.date()), time(), UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise AuditError(
            f"{option}: {text!r} is not a time: write 2026-11-22T08:00, or a date such as {EXAMPLES} (UTC)"
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> int:
    audited: list[int] = []

    def audit_once(settings: Settings) -> int:
        with failing_as(AuditError, "the audit failed"):
            audited.append(run(settings, sys.argv[1:], datetime.now(UTC)))
        return 0

    return AuditError.exit_status if run_once(audit_once) else audited[0]


if __name__ == "__main__":
    sys.exit(main())
