"""The one file of the pipelines that reads: Kafka topics as streams, Delta tables as they are now."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from schemas.tables import Table

_JAVA_NAMES = {"sasl.mechanisms": "sasl.mechanism", "ssl.ca.location": "ssl.truststore.location"}
"""Settings that librdkafka and the Java client spell differently; all others they have in common."""

LONGEST_WAIT = "1m"


class Kafka(NamedTuple):
    """A broker to talk to; `client` further settings as librdkafka spells them."""

    bootstrap: str
    client: Mapping[str, str] = {}

    def options(self) -> dict[str, str]:
        """Options of a Spark source or sink."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {
            f"kafka.{k}": v for k, v in _java_client(self.client).items()
        }


def topic_stream(
    spark: SparkSession,
    kafka: Kafka,
    topics: Sequence[str],
    max_offsets: int,
    headers: bool = False,
    min_offsets: int = 0,
) -> DataFrame:
    """Records of `topics`: `key, value, topic, partition, offset, timestamp` and, if asked for, `headers`.

    With `min_offsets` a batch waits for so many records, a minute at most.

    Contract: every record from the beginning of the topics, once in the query's offsets, in order within a partition;
    at most `max_offsets` a batch, so that the first batch after downtime stays bounded. When the broker has deleted
    records before they were read, the query fails (`failOnDataLoss`): a gap in the ledger must not pass in silence. It
    takes a new generation to go on.
    """
    least = {"minOffsetsPerTrigger": str(min_offsets), "maxTriggerDelay": LONGEST_WAIT} if min_offsets else {}
    return (
        spark.readStream.format("kafka")
        .options(**(kafka.options() | least))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", max_offsets)
        .option("includeHeaders", headers)
        .load()
    )


def realtime_stream(spark: SparkSession, kafka: Kafka, topic: str, positions: str | None = None) -> DataFrame:
    """Records of `topic` with headers for a Real-Time-Mode query, which knows no bound on a batch but its time.

    Contract: every record from the beginning, or from `positions` on (JSON, `{topic: {partition: offset}}`), for a
    query whose checkpoint is new; in order within a partition, at least once: a crash shows up to one batch again.
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


def table_uri(tables: str, table: Table) -> str:
    """Where a Delta table stands under the directory or URI `tables`."""
    return f"{tables}/{table.name}"


def read_table(spark: SparkSession, tables: str, table: Table) -> DataFrame:
    """A Delta table as of now."""
    return spark.read.format("delta").load(table_uri(tables, table))


def _java_client(client: Mapping[str, str]) -> dict[str, str]:
    settings = {_JAVA_NAMES.get(name, name): value for name, value in client.items()}
    user, password = settings.pop("sasl.username", None), settings.pop("sasl.password", None)
    if user is not None and password is not None:
        module = (
            "scram.ScramLoginModule"
            if settings.get("sasl.mechanism", "").startswith("SCRAM")
            else "plain.PlainLoginModule"
        )
        login = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
        settings["sasl.jaas.config"] = login
    if "ssl.ca.location" in client:
        settings.setdefault("ssl.truststore.type", "PEM")
    return settings
