"""The audit: repeats and compares every message's routing decision (`python -m jobs.audit --date 2026-11-22`).

Prints one JSON object: `since, until` (UTC), `shards`, the number of `messages`, of which `right`, `differs`, `later`
(not judged: beyond the completeness watermark), how many were sent to `everyone`, `kinds` of differences with the
number of messages for each, `examples`, and `reach`, the watermark. Exit status 0 without differences, 1 with some, 2
if nothing could be audited: then one sentence on standard error, and no report. It only reads.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.audit.completeness import reach_of
from jobs.errors import AuditError
from jobs.observe.progress import first_line
from jobs.quality.contents import existing_contents
from jobs.runtime.application import run_once
from jobs.runtime.dates import EXAMPLES, parse_date
from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings
from jobs.stack.missing import why_no_tables
from pipelines.routing import audit
from pipelines.routing.audit import Ledger, Period
from pipelines.routing.decisions import DIFFERS, LATER, RIGHT, Reach
from pipelines.routing.route_buckets import in_buckets
from pipelines.sources import read_table
from schemas.settings import Settings
from schemas.tables import INSTRUCTIONS, MESSAGES, OUTCOMES, ROUTES_HISTORY

PART = "audit"
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
        raise AuditError("name the messages to audit: either --date 2026-11-22, or --since 2026-11-22T08:00")
    if given.date and given.until:
        raise AuditError("--until goes with --since, not with --date: a date is a whole day")
    if given.date:
        try:
            since = datetime.combine(parse_date(given.date, now.date()), time(), UTC)
        except ValueError as error:
            raise AuditError(f"--date: {error}") from error
        return Request(Period(since, since + timedelta(days=1)), given.examples)
    since = _moment("--since", given.since, now)
    until = _moment("--until", given.until, now) if given.until else now
    if since >= until:
        raise AuditError(f"the period is empty: --since {given.since} is not before {given.until or 'now'}")
    return Request(Period(since, until), given.examples)


def report(spark: SparkSession, tables: str, asked: Request, shards: int, reach: Reach) -> dict[str, Any]:
    """The report, as described in the module's docstring."""
    period = asked.period
    tables_read = (MESSAGES, ROUTES_HISTORY, INSTRUCTIONS, OUTCOMES)
    ledger = Ledger(*(read_table(spark, tables, table) for table in tables_read))
    messages = ledger.messages.where((F.col("date") >= period.since.date()) & period.holds(F.col("appended")))
    messages = messages.where(F.col("date") <= period.until.date())
    routes = in_buckets(audit.routes_in(period, audit.intervals(ledger.routes_history)))
    routes.rows.persist()
    ids = audit.doubtful(audit.wanted(messages, routes, period, shards), ledger, period, reach).persist()
    doubts = NO_DOUBTS
    if not ids.isEmpty():
        few = ledger._replace(messages=messages).about(ids)
        wanted = audit.wanted(few.messages, routes, period, shards)
        doubts = _doubts(audit.judged(wanted, few, period, shards, reach), asked.examples)
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
        "reach": {name: _text(moment) for name, moment in reach._asdict().items()},
    }


def run(settings: Settings, arguments: Sequence[str], now: datetime) -> int:
    """Audit according to `arguments`, and print the report; returns the exit status. Raises AuditError, also if nothing
    was audited."""
    asked = request(arguments, now)
    tables = settings.tables
    if not DeltaTable.is_deltatable(f"{tables}/{MESSAGES.name}"):
        raise AuditError(why_no_tables(tables))
    refuse_if_untouched(tables, asked.period)
    reach = reach_of(tables, settings.audit.patience_s)
    os.nice(settings.stack.ledger_niceness)
    spark = build_session(PART, "local[*]", session_settings(settings))
    try:
        found = report(spark, tables, asked, settings.kafka.shards, reach)
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
    routes = found["reach"]["routes"] or "nowhere"
    raise AuditError(
        f"none of the {found['messages']:,} messages {period} can be audited yet: the ledger knows all routes until "
        f"{routes} only; keep it running, and ask again in a few minutes"
    )


def _nothing_between(since: str | None, until: str | None) -> AuditError:
    return AuditError(
        f"the ledger has no messages between {since} and {until}: there is nothing to audit; name another time"
    )


def session_settings(settings: Settings) -> dict[str, str]:
    """The audit session's settings in addition to :mod:`jobs.runtime.spark_session`; its JVM uses the ledger's
    options."""
    return {
        "spark.driver.memory": settings.audit.heap,
        JAVA_OPTIONS: settings.stack.ledger_java_options,
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        **storage_settings(settings.storage),
    }


def _doubts(judged: DataFrame, examples: int) -> Doubts:
    # Used several times.
    doubtful = judged.where(F.col("verdict") != RIGHT).persist()
    counted = doubtful.groupBy("verdict").agg(F.count("*").alias("all"), F.count("partition").alias("messages"))
    verdicts = {row["verdict"]: row for row in counted.collect()}
    of_all = {verdict: row["all"] for verdict, row in verdicts.items()}
    return Doubts(
        sum(row["messages"] for row in verdicts.values()),
        of_all.get(DIFFERS, 0),
        of_all.get(LATER, 0),
        _kinds(doubtful),
        _examples(doubtful, examples),
    )


def _kinds(doubtful: DataFrame) -> dict[str, int]:
    """How many messages have each kind of difference, in the order of kinds."""
    kinds = doubtful.select(F.explode(F.array_distinct("differences.kind")).alias("kind"))
    return {row["kind"]: row["count"] for row in kinds.groupBy("kind").count().orderBy("kind").collect()}


def _examples(doubtful: DataFrame, number: int) -> list[dict[str, Any]]:
    first = doubtful.where(F.col("verdict") == DIFFERS).orderBy("appended", "message_id").limit(number)
    return [
        {**row.asDict(recursive=True), "appended": _text(row.appended.replace(tzinfo=UTC))} for row in first.collect()
    ]


def _moment(option: str, text: str, now: datetime) -> datetime:
    """A time, or the start of a date."""
    with suppress(ValueError):
        return datetime.combine(parse_date(text, now.date()), time(), UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise AuditError(
            f"{option}: {text!r} is not a time: write 2026-11-22T08:00 or a date: {EXAMPLES} (UTC)"
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> int:
    return run_once(lambda settings: run(settings, sys.argv[1:], datetime.now(UTC)))


if __name__ == "__main__":
    sys.exit(main())
