"""The rows of `feed_copies`, made from the records of feeds' topics (:mod:`feeds.message`, :mod:`feeds.passed`).

A record is accepted here exactly if those modules decode it; a test checks that they agree. What is neither a copy nor
an adapter's word that it has passed a number goes to quarantine.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from feeds.message import FEEDS, HEADER, NAME_BYTES_MAX, VERSION
from feeds.passed import HEADER as PASSED_HEADER
from pipelines.ledger.history import appended
from pipelines.records import KEPT_BYTES, Complaint, Format, complaint, judged, moment_us, text

KINDS = (HEADER, PASSED_HEADER)
NUMBER = "(0|[1-9][0-9]{0,18})"
KEY = rf"^[^\x00-\x1f#+]+@{NUMBER}\z"
FIELDS = rf"^[0-9]+(;{NUMBER}){{4}};[^\x00-\x1f;]+\z"
NUMBERS = ("sequence", "part", "message_sequence", "read_us")
ACTIVE, BACKUP = (feed.name.lower() for feed in FEEDS)

Partitions = Mapping[str, int]
"""The number of partitions of each topic."""


def feed_format() -> Format:
    """The format of a feed's topic: copies, and records that say that an adapter has passed a number."""

    def parse() -> Column:
        header = F.get("headers", F.lit(0))
        written = text(header["value"])
        field = [F.get(F.split(written, ";"), F.lit(n)) for n in range(6)]
        key = text("key")
        epoch = F.substring_index(key, "@", -1)
        numbers = [field[n].try_cast("long").alias(name) for n, name in enumerate(NUMBERS, 1)]
        return F.struct(
            key.alias("stream"),
            F.substring(key, F.lit(1), F.length(key) - F.length(epoch) - 1).alias("name"),
            epoch.try_cast("long").alias("epoch"),
            F.array_join(F.col("headers")["key"], ", ").alias("headers"),
            header["key"].alias("kind"),
            written.alias("written"),
            field[0].alias("version"),
            *numbers,
            field[5].alias("adapter"),
        )

    def complaints(copy: Column) -> list[Complaint]:
        is_stream = copy["stream"].rlike(KEY) & (F.octet_length(copy["name"]) <= NAME_BYTES_MAX)
        is_known = copy["headers"].isin(*KINDS)
        is_formed = copy["written"].rlike(FIELDS) & (F.octet_length(copy["adapter"]) <= NAME_BYTES_MAX)
        too_large = reduce(Column.__or__, (copy[name].isNull() for name in NUMBERS))
        of_part = (copy["kind"] == PASSED_HEADER) & (copy["part"] != 0)
        is_mark = copy["kind"] == PASSED_HEADER
        return [
            complaint(
                ~F.coalesce(is_stream, F.lit(False)) | copy["epoch"].isNull(),
                "key '", copy["stream"], "' is not a source stream id, name@epoch, of allowed characters and lengths",
            ),
            complaint(
                ~F.coalesce(is_known, F.lit(False)),
                "the headers are [", copy["headers"], f"], not [{HEADER}] or [{PASSED_HEADER}]",
            ),
            complaint(copy["written"].isNull(), "header ", copy["kind"], " is empty or not UTF-8"),
            complaint(
                copy["version"] != str(VERSION), "feed message version ", copy["version"], f" is not {VERSION}"
            ),
            complaint(
                ~F.coalesce(is_formed, F.lit(False)), "header ", copy["kind"], " '", copy["written"], "' is malformed"
            ),
            complaint(too_large, "header ", copy["kind"], " '", copy["written"], "' has a number above 2^63-1"),
            complaint(of_part, f"header {PASSED_HEADER} is about part ", copy["part"], ", not about a message"),
            complaint(is_mark & F.col("value").isNotNull(), f"a record with the header {PASSED_HEADER} has a value"),
        ]  # fmt: skip

    return Format(parse, complaints)


def copies(records: DataFrame, prefix: str, with_payloads: bool = True) -> DataFrame:
    """Rows of `feed_copies`, but for their slot (:func:`with_slots`), from the topics that begin with `prefix`.

    Also columns that the table lacks: `topic`; `kind`, :data:`KINDS`; and `quarantined`. Copies that a slot brings
    twice are included twice.
    """
    copy = F.col("record")
    payload = F.col("value") if with_payloads else F.lit(None).cast("binary")
    content = F.coalesce("value", F.lit(b""))
    return judged(records, feed_format()).select(
        F.substring("topic", F.lit(len(prefix) + 1), F.length("topic")).alias("feed"),
        *(copy[name].alias(name) for name in ("stream", "name", "epoch", "sequence", "part")),
        *(copy[name].alias(name) for name in ("adapter", "message_sequence")),
        moment_us(copy["read_us"]).alias("read"),
        F.crc32(content).alias("crc32"),
        F.length(content).cast("long").alias("payload_bytes"),
        F.when(F.length(content) > 0, payload).alias("payload"),
        "partition",
        "offset",
        *appended(),
        "topic",
        copy["kind"].alias("kind"),
        "quarantined",
    )


def with_slots(rows: DataFrame, partitions: Partitions) -> DataFrame:
    """Adds `slot`: the first half of a topic's `partitions` is the active's, the second the backup's. Records of a
    topic with an odd number of partitions are quarantined, because nobody knows which half they are on."""
    halves = {topic: count // len(FEEDS) if count % len(FEEDS) == 0 else None for topic, count in partitions.items()}
    entries = [F.lit(of) for topic, half in halves.items() for of in (topic, half)]
    half = F.element_at(F.create_map(*entries), F.col("topic")) if entries else F.lit(None).cast("int")
    why = F.concat(F.lit("the topic "), "topic", F.lit(" has an odd number of partitions"))
    odd = F.struct(
        "topic",
        "partition",
        "offset",
        why.alias("reason"),
        F.base64(F.substring(F.coalesce("payload", F.lit(b"")), 1, KEPT_BYTES)).alias("record"),
        F.unix_millis("appended").alias("appended_ms"),
    )
    return rows.select(
        "*",
        half.alias("half"),
        F.when(F.col("partition") < half, ACTIVE).otherwise(BACKUP).alias("slot"),
    ).withColumn("quarantined", F.when(F.col("half").isNull(), odd).otherwise(F.col("quarantined")))
