"""The Delta tables of the ledger: each column once, with its meaning. :mod:`schemas.spark` converts them for Spark.

Times are UTC with microseconds. "Append time" is the broker's clock when the record was appended to its topic. History
tables are append-only and partitioned by `date`, the UTC date of the record's own append time.
"""

from datetime import UTC, datetime
from typing import NamedTuple

CURRENT_BUCKETS = 16
"""Partitions of a current-state table."""

FAR_FUTURE = datetime(9999, 12, 31, tzinfo=UTC)
"""`effective_until` of a target of `routes` that has not ended."""

DATE_DOC = "UTC date of `appended`; partition column"


class Column(NamedTuple):
    """`type` is a Spark SQL type name; `required` columns are never null."""

    name: str
    type: str
    doc: str
    required: bool = False


class Table(NamedTuple):
    """`partition_by`: columns. `key`: columns of which no two rows have the same values; nulls are equal to each
    other."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    key: tuple[str, ...]


ROUTES = Table(
    "routes",
    "Which shards want which route key, and when: one row a route key. The router's broadcast side.",
    (
        Column("route_key", "string", "Coarse key: leading levels of topic filters, or `#`", required=True),
        Column("bucket", "int", "Partition column: -1 for `#`, else crc32(route_key) modulo 16", required=True),
        Column(
            "targets",
            "array<struct<shard:int,effective_from:timestamp,effective_until:timestamp>>",
            "Shards and the append times [from, until) for which each wants the key",
            required=True,
        ),
        Column("as_of", "timestamp", "On the row `#` only: all events appended before this time are in the table"),
    ),
    ("bucket",),
    ("route_key",),
)

ROUTES_HISTORY = Table(
    "routes_history",
    "Every route event, as it came.",
    (
        Column("shard", "int", "Shard that began or ended to want the key", required=True),
        Column("route_key", "string", "Coarse key", required=True),
        Column("op", "string", "`add` or `drop`", required=True),
        Column("effective", "timestamp", "When it takes effect: append time plus route lead", required=True),
        Column("offset", "long", "Offset on `routes`", required=True),
        Column("appended", "timestamp", "Append time on `routes`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("offset", "appended"),
)

ORIGIN = Column(
    "origin",
    "string",
    "Who has sent the message: `client` an MQTT client, `http` a program by a POST, `will` the gateway in place of a "
    "client that was lost, `platform` the platform itself, which tells on `$presence/…` who comes and goes; null in "
    "rows from before there was this column",
)

MESSAGES = Table(
    "messages",
    "Every message that was accepted, once: those of clients, and the platform's own, which `origin` tells apart.",
    (
        Column("id", "string", "Message id, a UUID", required=True),
        Column("source", "string", "Client id of the sender", required=True),
        Column("destination", "string", "Topic name, or `@client-id`", required=True),
        Column("qos", "int", "QoS of the PUBLISH: 0, 1, 2", required=True),
        Column("retained", "boolean", "The RETAIN flag of the PUBLISH", required=True),
        Column(
            "flags",
            "string",
            "What the source gateway found, a letter each: `r` retained, `a` an attachment larger than policy has it, "
            "`w` a will, `h` posted over HTTP; null in rows from before there were any",
        ),
        ORIGIN,
        Column("expires", "timestamp", "Not to be delivered after this time; null for never"),
        Column("accepted", "timestamp", "When the source gateway took it, the gateway's clock", required=True),
        Column("sequence", "int", "Packet identifier of a QoS 2 message from a persistent session"),
        Column("payload", "binary", "Payload as sent"),
        Column("payload_bytes", "long", "Length of the payload", required=True),
        Column("properties", "binary", "MQTT 5 properties that travel with the message, wire encoding"),
        Column("partition", "int", "Partition on `ingress`", required=True),
        Column("offset", "long", "Offset on `ingress`", required=True),
        Column("appended", "timestamp", "Append time on `ingress`: from then on Kafka has it", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("partition", "offset", "appended"),
)

INSTRUCTIONS = Table(
    "instructions",
    "Every routing instruction, once: the first of the routers' copies.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("destination", "string", "Destination of the message", required=True),
        Column("shard", "int", "Shard that is to deliver", required=True),
        Column("number", "int", "0 … n-1 within the message and scope", required=True),
        Column("limit", "int", "n, on the last instruction only: the completion condition"),
        Column(
            "scope",
            "string",
            "`routed` by the routes, or `everyone`: the routes were not known to be complete",
            required=True,
        ),
        Column("router", "string", "Which router's copy came first: `active` or `backup`", required=True),
        Column("partition", "int", "Partition of the message on `ingress`", required=True),
        Column("offset", "long", "Offset of the message on `ingress`", required=True),
        Column("message_appended", "timestamp", "Append time of the message on `ingress`", required=True),
        Column("egress_offset", "long", "Offset on `egress`, partition = shard", required=True),
        Column("appended", "timestamp", "Append time on `egress`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("partition", "offset", "message_appended", "shard", "scope"),
)

OUTCOMES = Table(
    "outcomes",
    "What became of every instruction, a row a recipient; and of every message delivered without one.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("shard", "int", "Shard that reports; null for `untouched`"),
        Column(
            "number",
            "int",
            "Number of the instruction; null for `untouched`, and where no instruction asked for the delivery",
        ),
        Column("scope", "string", "The decision that instructed it, as in `instructions`; `routed` if there is none"),
        Column(
            "path",
            "string",
            "How the message came to the recipient: `instructed` by the routers, `direct` from `ingress` ahead of its "
            "route, `retained` on SUBSCRIBE; null for `untouched`, and in rows from before there was this column",
        ),
        Column(
            "offered",
            "timestamp",
            "Of a retained message sent on SUBSCRIBE: when it was offered to the recipient, the gateway's clock; no "
            "two sendings have the same. Null for other rows",
        ),
        ORIGIN,
        Column("client", "string", "Recipient; null when there was none"),
        Column(
            "outcome",
            "string",
            "`delivered`, `sent` (QoS 0), `expired`, `ended`, `dropped`, `nobody` (instruction without recipient), "
            "`untouched` (message without instruction)",
            required=True,
        ),
        Column("qos", "int", "QoS of the delivery"),
        Column(
            "at",
            "timestamp",
            "When it happened, the gateway's clock; the append time where no gateway was involved",
            required=True,
        ),
        Column(
            "message_appended",
            "timestamp",
            "Append time of the message on `ingress`; of a retained message sent on SUBSCRIBE, on `retained`",
            required=True,
        ),
        Column("appended", "timestamp", "Append time on `progress`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("message_id", "message_appended", "scope", "number", "client", "outcome", "offered"),
)

COMPLETIONS = Table(
    "completions",
    "Every completed message, once.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("touches", "int", "How many instructions it had", required=True),
        Column("message_appended", "timestamp", "Append time of the message on `ingress`", required=True),
        Column("completed", "timestamp", "Append time of the last relinquish", required=True),
        Column("appended", "timestamp", "Append time on `completion`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("message_id", "message_appended"),
)

PRESENCE_HISTORY = Table(
    "presence_history",
    "Every coming and going of a client; the ledger adds the ends that a lost gateway cannot report.",
    (
        Column("client", "string", "Client id", required=True),
        Column("event", "string", "`connected`, `disconnected` or `lost`", required=True),
        Column("gateway", "string", "Gateway of the connection", required=True),
        Column(
            "epoch",
            "long",
            "Connection of the client: µs since the epoch when it was made; a loss that a gateway found out when it "
            "was started again has a number of its own",
            required=True,
        ),
        Column(
            "seq",
            "long",
            "Number of the event within the epoch; of one that the ledger adds, `at` in µs",
            required=True,
        ),
        Column(
            "at",
            "timestamp",
            "When it happened, the gateway's clock; with `gateway_lost` and `gateway_back` when that was found",
            required=True,
        ),
        Column("peer", "string", "Address of the client"),
        Column("protocol", "string", "`mqtt3.1.1`, `mqtt5`, with `+ws` over WebSocket"),
        Column(
            "reason",
            "string",
            "Why the connection ended: `gateway_lost` if its gateway did not live to report it. `gateway_back` on a "
            "`connected` that takes such an end back",
        ),
        Column("user", "string", "Whom the client was authenticated as; null for nobody"),
        Column("appended", "timestamp", "Append time on `presence`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("client", "gateway", "epoch", "seq"),
)

PRESENCE = Table(
    "presence",
    "Which clients are online now: one row a client, over all its attachments.",
    (
        Column("client", "string", "Client id", required=True),
        Column("bucket", "int", "Partition column: crc32(client) modulo 16", required=True),
        Column("online", "boolean", "Whether any attachment is live", required=True),
        Column(
            "at",
            "timestamp",
            "When that came to be, its gateway's clock; with `gateway_lost` when that was found, the broker's clock",
            required=True,
        ),
        Column("reason", "string", "Why it is offline; null while online"),
        Column(
            "attachments",
            "array<struct<gateway:string,attachment:string,boot:long,epoch:long,seq:long,live:boolean,since:timestamp,"
            "at:timestamp,peer:string,protocol:string,reason:string,user:string>>",
            "The connections that are known of: by which gateway, whether live, since when, the last event, whence, "
            "as whom",
            required=True,
        ),
        Column("updated", "timestamp", "Append time on `presence-state`", required=True),
    ),
    ("bucket",),
    ("client",),
)

MESSAGE_PRESENCE = Table(
    "message_presence",
    "Who has which message of the mesh, and what became of it: one row a message, as long as that is kept.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("bucket", "int", "Partition column: crc32(message_id) modulo 16", required=True),
        Column("state", "string", "`pending`, `expired` or `delivered`, which wins", required=True),
        Column("origin", "string", "Agent that the message comes from"),
        Column("delivered_by", "string", "Agent of the earliest delivery"),
        Column("delivered_to", "string", "Its recipient"),
        Column("delivered", "timestamp", "Its time, the agent's clock"),
        Column("holders", "array<string>", "Agents that hold a copy", required=True),
        Column("attempting", "array<string>", "Those of them that try to deliver it", required=True),
        Column("refused", "array<string>", "Agents that do not hold it, or no more", required=True),
        Column("claim_agent", "string", "Agent with the claim to deliver it that was granted last"),
        Column("claim_until", "timestamp", "When that claim is over, the broker's clock"),
        Column("retired", "boolean", "Whether its originator needs the record no more", required=True),
        Column("kept_until", "timestamp", "How long the record is kept", required=True),
        Column("updated", "timestamp", "Append time on `message-presence-state`", required=True),
    ),
    ("bucket",),
    ("message_id",),
)

MESSAGE_PRESENCE_HISTORY = Table(
    "message_presence_history",
    "Everything that agents have said of messages, as it came.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column(
            "event",
            "string",
            "`attempting`, `propagated`, `claimed`, `delivered`, `refused`, `expired` or `retired`",
            required=True,
        ),
        Column("agent", "string", "Agent that says so", required=True),
        Column("origin", "string", "Agent on whose behalf it attempts delivery"),
        Column("peer", "string", "To whom it was propagated or delivered"),
        Column("reason", "string", "Why it was refused"),
        Column("at", "timestamp", "When it happened, the agent's clock", required=True),
        Column("until", "timestamp", "How long the claim, or the record, is asked for"),
        Column("partition", "int", "Partition on `message-presence`", required=True),
        Column("offset", "long", "Offset on `message-presence`", required=True),
        Column("appended", "timestamp", "Append time on `message-presence`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("partition", "offset", "appended"),
)

QUARANTINE = Table(
    "quarantine",
    "Records that could not be parsed, with the reason.",
    (
        Column("topic", "string", "Topic the record stands on", required=True),
        Column("partition", "int", "Its partition", required=True),
        Column("offset", "long", "Its offset", required=True),
        Column("reason", "string", "What is wrong with it", required=True),
        Column("record", "binary", "Its value, cut at 64 KiB"),
        Column(
            "record_appended",
            "timestamp",
            "Its append time there; null in rows from before there was this column",
        ),
        Column("at", "timestamp", "When it was found", required=True),
        Column("appended", "timestamp", "Append time on `quarantine`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("topic", "partition", "offset", "record_appended"),
)

QUALITY_RESULTS = Table(
    "quality_results",
    "What every run of the quality job found: a row an expectation and date judged.",
    (
        Column("run_id", "string", "Run of the job, a UUID", required=True),
        Column("run_at", "timestamp", "When the run began, the job's clock", required=True),
        Column("suite", "string", "What must hold, as a family: the name of the expectation suite", required=True),
        Column("expectation", "string", "What must hold of one table, in a sentence", required=True),
        Column("table_name", "string", "Table whose rows were judged", required=True),
        Column("success", "boolean", "Whether it held", required=True),
        Column("judged", "long", "Rows of the date that were judged", required=True),
        Column("unexpected", "long", "How many of them, or how many gaps, were not as expected", required=True),
        Column(
            "observed",
            "double",
            "What was compared: `unexpected`, or a latency in milliseconds; null where there are too few rows to tell",
        ),
        Column("allowed", "double", "The greatest value of `observed` that succeeds", required=True),
        Column("sample", "string", "Some of the unexpected, by their ids, one a line; null if there are none"),
        Column("table_version", "long", "Version of the table when the run began", required=True),
        Column("table_rows", "long", "Rows that the table had for the date, judged yet or not", required=True),
        Column("judged_until", "timestamp", "Rows appended before this time were judged", required=True),
        Column("date", "date", "UTC date that was judged; partition column", required=True),
    ),
    ("date",),
    ("run_id", "date", "expectation"),
)

TABLES = {
    table.name: table
    for table in (
        ROUTES,
        ROUTES_HISTORY,
        MESSAGES,
        INSTRUCTIONS,
        OUTCOMES,
        COMPLETIONS,
        PRESENCE,
        PRESENCE_HISTORY,
        MESSAGE_PRESENCE,
        MESSAGE_PRESENCE_HISTORY,
        QUARANTINE,
        QUALITY_RESULTS,
    )
}

HISTORY = tuple(table for table in TABLES.values() if {"appended", "date"} <= {column.name for column in table.columns})
"""The tables filled from topics: append-only, each row dated by its own append time."""
