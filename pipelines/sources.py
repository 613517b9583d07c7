"""The only file of the pipelines that reads: Kafka topics as streams, Delta tables as they are now."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.records import Format, parsed
from schemas.errors import SettingsError
from schemas.table import Table

_JAVA_NAMES = {"sasl.mechanisms": "sasl.mechanism"}
"""Settings that librdkafka and the Java client spell differently; all others are the same."""

_PEM_FILES = {
    "ssl.ca.location": ("ssl.truststore.certificates", "truststore"),
    "ssl.certificate.location": ("ssl.keystore.certificate.chain", "keystore"),
    "ssl.key.location": ("ssl.keystore.key", "keystore"),
}
"""PEM files of librdkafka: the Java setting for their content, and the kind of store it belongs to."""

EARLIEST_OFFSET = -2
"""Spark's code for the earliest offset, where it wants an offset for each partition."""

LONGEST_WAIT = "1m"

LONGEST_FETCH_MS = 5
"""How long the broker may hold a request for records that do not exist yet. A broker answers a connection's requests in
order. Spark's consumer, once it has records, asks for the next ones and then for the topic's ends. With Kafka's default
of 500 ms each batch would wait that long for each partition that has no more records."""


class Kafka(NamedTuple):
    """A broker; `client` are further settings as librdkafka spells them."""

    bootstrap: str
    client: Mapping[str, str] = {}

    def options(self) -> dict[str, str]:
        """Options of a Spark sink."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {
            f"kafka.{k}": v for k, v in _java_client(self.client).items()
        }

    def source_options(self) -> dict[str, str]:
        """Options of a Spark source."""
        return {"kafka.fetch.max.wait.ms": str(LONGEST_FETCH_MS)} | self.options()


def topic_stream(
    spark: SparkSession,
    kafka: Kafka,
    topics: Sequence[str],
    max_offsets: int,
    headers: bool = False,
    min_offsets: int = 0,
    starting: str = "earliest",
) -> DataFrame:
    """Records of `topics`: `key, value, topic, partition, offset, timestamp` and optionally `headers`.

    With `min_offsets` a batch waits for that many records, but at most a minute. `starting` is where a query without a
    checkpoint starts (:func:`pipelines.kafka.starting_offsets.resolve`).

    Contract: every record from there on, once in the query's offsets, in order within a partition; at most
    `max_offsets` per batch, so that the first batch after downtime is bounded. If the broker has deleted records before
    they were read, the query fails (`failOnDataLoss`), because a gap in the ledger must not go unnoticed. A new
    generation is needed to go on.
    """
    least = {"minOffsetsPerTrigger": str(min_offsets), "maxTriggerDelay": LONGEST_WAIT} if min_offsets else {}
    subscription = {"subscribe": ",".join(topics), "startingOffsets": starting} | least
    return _stream(spark, kafka, max_offsets, headers, subscription)


def topics_stream(
    spark: SparkSession, kafka: Kafka, prefix: str, max_offsets: int, headers: bool = False, starting: str = "earliest"
) -> DataFrame:
    """Records of all topics whose names begin with `prefix`, as :func:`topic_stream` has them.

    Contract: that of :func:`topic_stream` for each of the topics. Topics that are created later are read from their
    beginning, from the next batch on. If a topic is deleted, the query fails
    (:mod:`pipelines.feeds.positions` has it go on at its next start).
    """
    subscription = {"subscribePattern": rf"\Q{prefix}\E.*", "startingOffsets": starting}
    return _stream(spark, kafka, max_offsets, headers, subscription)


def _stream(
    spark: SparkSession, kafka: Kafka, max_offsets: int, headers: bool, subscription: dict[str, str]
) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .options(**(kafka.source_options() | subscription))
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_offsets)
        .option("includeHeaders", headers)
        .load()
    )


def realtime_stream(spark: SparkSession, kafka: Kafka, topic: str, positions: str | None = None) -> DataFrame:
    """Records of `topic` with headers for a Real-Time-Mode query, whose batches are bounded only by time.

    Contract: for a query with a new checkpoint, every record from the beginning, or from `positions` on (JSON, `{topic:
    {partition: offset}}`); in order within a partition, at least once: a crash repeats up to one batch. If the broker
    has deleted records before they were read, the query fails at each start: in Real-Time Mode `failOnDataLoss` does
    not make it skip them (:mod:`pipelines.storage.skipping` does).
    """
    return (
        spark.readStream.format("kafka")
        .options(**kafka.options())
        .option("subscribe", topic)
        .option("startingOffsets", positions or "earliest")
        .option("failOnDataLoss", "false")
        .option("includeHeaders", "true")
        .load()
    )


def topic_until(spark: SparkSession, kafka: Kafka, topic: str, ends: Mapping[int, int]) -> DataFrame:
    """What remains of `topic` before `ends`: by partition, the first offset not to be read."""
    return (
        spark.read.format("kafka")
        .options(**kafka.source_options())
        .option("assign", json.dumps({topic: sorted(ends)}))
        .option("startingOffsets", json.dumps({topic: dict.fromkeys(map(str, ends), EARLIEST_OFFSET)}))
        .option("endingOffsets", json.dumps({topic: {str(partition): end for partition, end in ends.items()}}))
        .option("failOnDataLoss", "false")
        .load()
    )


def topic_now(spark: SparkSession, kafka: Kafka, topic: str, form: Format) -> DataFrame:
    """The current contents of a compacted topic: `key, value, appended_ms` and `record`, as `form` parses it: the
    latest good record of each key that has not been ended."""
    records = (
        spark.read.format("kafka")
        .options(**kafka.source_options())
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    # A tombstone has no value and is not of the format; max_by ignores nulls, but not structs.
    known = parsed(records, form, with_ends=True).where("key IS NOT NULL")
    fields = F.struct("value", "record", F.unix_millis("timestamp").alias("appended_ms"))
    latest = F.max_by(fields, F.col("offset")).alias("latest")
    return known.groupBy("key").agg(latest).select("key", "latest.*").where("value IS NOT NULL")


def table_uri(tables: str, table: Table) -> str:
    """The location of a Delta table under the directory or URI `tables`."""
    return f"{tables}/{table.name}"


def read_table(spark: SparkSession, tables: str, table: Table) -> DataFrame:
    """A Delta table as of now. If a table of an earlier version lacks columns, which the ledger adds at its next start,
    they are present here and null."""
    rows = spark.read.format("delta").load(table_uri(tables, table))
    there = set(rows.columns)
    missing = {one.name: F.lit(None).cast(one.type) for one in table.columns if one.name not in there}
    return rows.withColumns(missing) if missing else rows


def _java_client(client: Mapping[str, str]) -> dict[str, str]:
    """Settings as the Java client spells them.

    librdkafka takes certificates and keys as files. Java gets their content, so that executors, which may be on
    machines without these files, need none. Passwords of keys are passed along. Raises SettingsError if a file cannot
    be read.
    """
    settings = {_JAVA_NAMES.get(name, name): value for name, value in client.items() if name not in _PEM_FILES}
    for name, (java_name, store) in _PEM_FILES.items():
        if name in client:
            settings[java_name] = _pem(name, client[name])
            settings[f"ssl.{store}.type"] = "PEM"
    user, password = settings.pop("sasl.username", None), settings.pop("sasl.password", None)
    if user is not None and password is not None:
        module = "scram.Scram" if settings.get("sasl.mechanism", "").startswith("SCRAM") else "plain.Plain"
        login = f"username={_quoted(user)} password={_quoted(password)};"
        settings["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module}LoginModule required {login}"
    return settings


def _quoted(text: str) -> str:
    """A value of a JAAS configuration."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _pem(name: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"kafka.client has {name} = {file!r}, which cannot be read: {error}") from error
