"""The rows of the ledger's history tables, made from the records of the topics.

Every transform takes the columns of the Kafka source and returns the columns of its table (:mod:`schemas.tables`) and
`quarantined`, which is null except for bad records (:func:`pipelines.records.judged`). Bad records become rows of no
table; they go to the topic `quarantine`. The rows of `quarantine` itself lack that column.

Where a topic may hold copies (from a second router, a rerun, or Spark's Kafka sink), so do these rows. They are dropped
by the table's key when the rows are appended (:class:`pipelines.storage.seen.SeenKeys`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.ledger.completion import progress_format
from pipelines.origin import origin_of
from pipelines.presence.client_presence import presence_format
from pipelines.records import (
    LATEST_INT,
    Complaint,
    Format,
    complaint,
    event_format,
    judged,
    moment_ms,
    moment_us,
    not_a_small_number,
    numeral,
    text,
    younger_than_record,
)
from schemas.envelope import EGRESS_HEADERS, EVERYONE, HOME_HEADERS, INGRESS_HEADERS, RETAIN_FLAG, ROUTED, VERSION
from schemas.events import CompletionEvent, QuarantineEvent

UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_SESSION, _BUNDLE = r"[0-9]+\.[0-9]+", r"[0-9]+\.[0-9]+\.[0-9]+(\.e)?"
_FEED = r"[01](\.[0-9]{1,19}){4}\.[^\x00-\x1f;]{1,255}"
_EPOCH = r"(0|[1-9][0-9]{0,18})"
_ALL = rf";({_SESSION})?;({_BUNDLE})?;({_FEED})?;{_EPOCH}"
_LATER = rf";({_SESSION})?;({_BUNDLE})?;({_FEED})?;({_EPOCH})?(;[^;]*)+"  # with fields that a later release adds
_MORE = rf"(;{_SESSION}|;({_SESSION})?;{_BUNDLE}|;({_SESSION})?;({_BUNDLE})?;{_FEED}|{_ALL}|{_LATER})?"
META = rf"^[^;]*;[012];[a-z]*;[0-9]*;[0-9]+;[0-9]*{_MORE}$"
INSTR = f"^[0-9]+;[0-9]+;[0-9]+;[0-9]*;[0-9]+;({ROUTED}|{EVERYONE})$"


def message_format() -> Format:
    """The format of `ingress`: :mod:`schemas.envelope`."""

    def complaints(message: Column) -> list[Complaint]:
        accepted = moment_us(message["accepted"])
        return [
            *_envelope_complaints(message, INGRESS_HEADERS),
            complaint(
                ~F.coalesce(message["id"].rlike(UUID), F.lit(False)), "header id '", message["id"], "' is not a UUID"
            ),
            complaint(message["version"] != VERSION, "envelope version ", message["version"], f" is not {VERSION}"),
            complaint(
                ~F.coalesce(message["meta"].rlike(META), F.lit(False)),
                "header meta '",
                message["meta"],
                "' is malformed",
            ),
            complaint(accepted.isNull(), "header meta '", message["meta"], "' has an accepted time out of range"),
            complaint(_unread(message, "expires"), "header meta '", message["meta"], "' has an expiry out of range"),
            complaint(_unread(message, "sequence"), "header meta '", message["meta"], "' has a sequence out of range"),
        ]

    def parse() -> Column:
        meta = F.split(_header("meta"), ";")
        part = [F.get(meta, F.lit(n)) for n in range(6)]
        return F.struct(
            *_envelope(),
            _header("meta").alias("meta"),
            part[0].alias("version"),
            part[1].try_cast("int").alias("qos"),
            part[2].alias("flags"),
            part[2].contains(RETAIN_FLAG).alias("retained"),
            part[3].alias("expires_text"),
            moment_ms(numeral(part[3], "long")).alias("expires"),
            part[4].try_cast("long").alias("accepted"),
            part[5].alias("sequence_text"),
            numeral(part[5], "int").alias("sequence"),
        )

    return Format(parse, complaints)


def instruction_format() -> Format:
    """The format of `egress`. What the gateway wrote is checked once, on `ingress`; here only what the routers
    added."""

    def complaints(instruction: Column) -> list[Complaint]:
        malformed = ~F.coalesce(instruction["instr"].rlike(INSTR), F.lit(False))
        counts = [F.coalesce(instruction[name], F.lit(LATEST_INT + 1)) for name in ("partition", "number")]
        return [
            *_envelope_complaints(instruction, EGRESS_HEADERS),
            complaint(F.coalesce(instruction["id"], F.lit("")) == "", "header id is empty or not UTF-8"),
            complaint(malformed, "header instr '", instruction["instr"], "' is malformed"),
            *(not_a_small_number(count, name) for count, name in zip(counts, ("partition", "number"), strict=True)),
            complaint(
                _unread(instruction, "limit"), "header instr '", instruction["instr"], "' has a limit out of range"
            ),
            complaint(
                instruction["offset"].isNull(), "header instr '", instruction["instr"], "' has an offset out of range"
            ),
            complaint(
                instruction["appended"].isNull(), "header instr '", instruction["instr"], "' has a time out of range"
            ),
            younger_than_record(instruction["appended"]),
            complaint(F.coalesce(instruction["router"], F.lit("")) == "", "header router is empty or not UTF-8"),
        ]

    def parse() -> Column:
        part = [F.get(F.split(_header("instr"), ";"), F.lit(n)) for n in range(6)]
        return F.struct(
            *_envelope(),
            _header("instr").alias("instr"),
            part[0].try_cast("long").alias("partition"),
            part[1].try_cast("long").alias("offset"),
            part[2].try_cast("long").alias("number"),
            part[3].alias("limit_text"),
            numeral(part[3], "int").alias("limit"),
            moment_ms(part[4].try_cast("long")).alias("appended"),
            part[5].alias("scope"),
            _header("router").alias("router"),
        )

    return Format(parse, complaints)


def completion_format() -> Format:
    """The format of `completion`."""

    def more(event: Column) -> list[Complaint]:
        appended = moment_ms(event["appended_ms"])
        return [not_a_small_number(event["touches"], "touches"), younger_than_record(appended)]

    return event_format(CompletionEvent, more)


def messages(records: DataFrame) -> DataFrame:
    """Rows of `messages`, from `ingress`. One row per record: nothing writes there twice."""
    message = F.col("record")
    return judged(records, message_format()).select(
        message["id"].alias("id"),
        message["source"].alias("source"),
        message["destination"].alias("destination"),
        message["qos"].alias("qos"),
        message["retained"].alias("retained"),
        message["flags"].alias("flags"),
        origin_of(message["destination"], message["flags"]).alias("origin"),
        message["expires"].alias("expires"),
        moment_us(message["accepted"]).alias("accepted"),
        message["sequence"].alias("sequence"),
        F.col("value").alias("payload"),
        F.coalesce(F.length("value"), F.lit(0)).cast("long").alias("payload_bytes"),
        _raw_header("props").alias("properties"),
        "partition",
        "offset",
        *appended(),
        "quarantined",
    )


def instructions(records: DataFrame) -> DataFrame:
    """Rows of `instructions`, from `egress`, including copies by the other router or a rerun. All copies of an
    instruction are on one partition, so the first one is well defined. What gateways write there themselves is left
    out."""
    record, first_header = F.col("record"), F.coalesce(F.get("headers", F.lit(0))["key"], F.lit(""))
    rows = judged(records.where(~first_header.isin(*HOME_HEADERS)), instruction_format()).select(
        record["id"].alias("message_id"),
        record["destination"].alias("destination"),
        F.col("partition").alias("shard"),
        record["number"].try_cast("int").alias("number"),
        record["limit"].alias("limit"),
        record["scope"].alias("scope"),
        record["router"].alias("router"),
        record["partition"].try_cast("int").alias("partition"),
        record["offset"].alias("offset"),
        record["appended"].alias("message_appended"),
        F.col("offset").alias("egress_offset"),
        *appended(),
        "quarantined",
    )
    return rows.transform(_with_event_time, "message_appended")


def outcomes(records: DataFrame) -> DataFrame:
    """Rows of `outcomes`, from `progress`: one per delivery; `nobody` for an instruction that ended without a delivery;
    `untouched` for a message without instructions. A relinquish marked `replayed` adds none. What a home reports again
    after a crash is included again: it is a copy by the table's key."""
    event, is_bad = F.col("record"), F.col("quarantined").isNotNull()
    deliveries = F.when(~is_bad & (event["kind"] != "untouched"), event["deliveries"])
    is_replayed = F.coalesce(event["replayed"], F.lit(False))
    none_given = F.coalesce(F.size("record.deliveries"), F.lit(0)) == 0
    without = F.when(event["kind"] == "untouched", "untouched").when(event["kind"] == "relinquish", "nobody")
    # explode_outer keeps an event without deliveries as one row with a null delivery; `without` then gives its outcome.
    rows = (
        judged(records, progress_format())
        .where(is_bad | (~is_replayed & (without.isNotNull() | ~none_given)))
        .select("*", F.explode_outer(deliveries).alias("delivery"))
        .select(
            event["id"].alias("message_id"),
            event["shard"].try_cast("int").alias("shard"),
            event["number"].try_cast("int").alias("number"),
            F.col("delivery.client").alias("client"),
            F.coalesce("delivery.outcome", without).alias("outcome"),
            F.col("delivery.qos").try_cast("int").alias("qos"),
            F.coalesce(moment_us(F.col("delivery.at_us")), F.col("timestamp")).alias("at"),
            moment_ms(event["appended_ms"]).alias("message_appended"),
            *appended(),
            F.coalesce(event["scope"], F.lit(ROUTED)).alias("scope"),
            _path(event).alias("path"),
            moment_us(event["offered_us"]).alias("offered"),
            event["origin"].alias("origin"),
            "quarantined",
        )
    )
    return rows.transform(_with_event_time, "message_appended")


def _path(event: Column) -> Column:
    """How a message reached a recipient; null if nobody wanted it. A retained message is on no partition of
    `ingress`."""
    return (
        F.when(event["kind"] == "untouched", F.lit(None))
        .when(event["number"].isNotNull(), "instructed")
        .when(event["partition"] < 0, "retained")
        .otherwise("direct")
    )


def completions(records: DataFrame) -> DataFrame:
    """Rows of `completions`, from `completion`. The first record of a message counts; later ones are copies."""
    event = F.col("record")
    rows = judged(records, completion_format()).select(
        event["id"].alias("message_id"),
        event["touches"].try_cast("int").alias("touches"),
        moment_ms(event["appended_ms"]).alias("message_appended"),
        moment_ms(event["completed_ms"]).alias("completed"),
        *appended(),
        "quarantined",
    )
    return rows.transform(_with_event_time, "message_appended")


def presence_history(records: DataFrame) -> DataFrame:
    """Rows of `presence_history`, from `presence` (R12): every connect and disconnect event of a client, unchanged.
    Events that the ledger application adds again after a crash are included again."""
    event, is_bad = F.col("record"), F.col("quarantined").isNotNull()
    is_sign_of_life = event["event"].isin("heartbeat", "tick") | (event["client"] == "")
    words = [F.nullif(event[name], F.lit("")).alias(name) for name in ("peer", "protocol", "reason", "user")]
    rows = judged(records, presence_format()).where(is_bad | ~is_sign_of_life)
    return rows.select(
        *(event[name].alias(name) for name in ("client", "event", "gateway", "epoch", "seq")),
        moment_us(event["at_us"]).alias("at"),
        *words,
        *appended(),
        "quarantined",
    )


def quarantine(records: DataFrame) -> DataFrame:
    """Rows of `quarantine`, from the topic, with only the first complaint about a record.

    A record of `quarantine` that cannot be parsed becomes a row about itself. If it were sent back to the topic, it
    would circulate forever.
    """
    event, itself = F.col("record"), F.col("quarantined")
    bad = itself.isNotNull()
    return judged(records, event_format(QuarantineEvent)).select(
        F.when(bad, itself["topic"]).otherwise(event["topic"]).alias("topic"),
        F.when(bad, itself["partition"]).otherwise(event["partition"].try_cast("int")).alias("partition"),
        F.when(bad, itself["offset"]).otherwise(event["offset"]).alias("offset"),
        F.when(bad, itself["reason"]).otherwise(event["reason"]).alias("reason"),
        F.when(bad, F.col("value")).otherwise(F.try_to_binary(event["record"], F.lit("base64"))).alias("record"),
        moment_ms(F.when(bad, itself["appended_ms"]).otherwise(event["appended_ms"])).alias("record_appended"),
        F.when(bad, F.col("timestamp")).otherwise(moment_us(event["at_us"])).alias("at"),
        *appended(),
    )


def _with_event_time(rows: DataFrame, time: str) -> DataFrame:
    """The same rows with `time` as their event time, so that Spark's progress reports the youngest of each batch.
    Nothing is dropped for being late, because only a stateful operator would do that. The fields of bad records are not
    trusted."""
    believed = F.when(F.col("quarantined").isNull(), F.col(time)).otherwise(F.col("appended"))
    return rows.withColumn(time, believed).withWatermark(time, "0 seconds")


def appended() -> tuple[Column, Column]:
    """The columns `appended` and `date`, which every history table has."""
    return F.col("timestamp").alias("appended"), F.to_date("timestamp").alias("date")


def _envelope() -> list[Column]:
    return [
        F.array_join(F.col("headers")["key"], ", ").alias("headers"),
        _header("id").alias("id"),
        _header("src").alias("source"),
        text("key").alias("destination"),
    ]


def _envelope_complaints(envelope: Column, headers: tuple[str, ...]) -> list[Complaint]:
    expected, found = ", ".join(headers), F.coalesce(envelope["headers"], F.lit(""))
    return [
        complaint(F.col("key").isNull(), "the key, which is the destination, is missing"),
        complaint(envelope["destination"].isNull(), "the key, which is the destination, is not UTF-8"),
        complaint(found != expected, "the headers are [", found, f"], not [{expected}]"),
        complaint(envelope["source"].isNull(), "header src is not UTF-8"),
    ]


def _unread(struct: Column, name: str) -> Column:
    """Whether there is a text that could not be converted to a value."""
    return (struct[f"{name}_text"] != "") & struct[name].isNull()


def _raw_header(name: str) -> Column:
    """The value of a header, by position: names and order have been checked, or will be."""
    return F.get("headers", F.lit(EGRESS_HEADERS.index(name)))["value"]


def _header(name: str) -> Column:
    return text(_raw_header(name))
