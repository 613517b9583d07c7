"""The Delta tables of the ledger: each column once, with its meaning. Spark's schemas: :mod:`pipelines.spark_schemas`.

Times are UTC with microseconds. "Append time" is the broker's clock when the record was appended to its topic. History
tables are append-only and partitioned by `date`, the UTC date of the record's own append time.
"""

from datetime import UTC, datetime

from schemas.feed_tables import FEED_COPIES, FEED_PROGRESS
from schemas.table import DATE_DOC, Column, Table

CURRENT_BUCKETS = 16
"""Partitions of a current-state table."""

FAR_FUTURE = datetime(9999, 12, 31, tzinfo=UTC)
"""`effective_until` of a target of `routes` that has not ended."""

ROUTES = Table(
    "routes",
    "Which shards want which route key, and when: the current state, one row per route key.",
    (
        Column(
            "route_key", "string", "Coarse key: leading levels of topic filters (two at most), or `#`", required=True
        ),
        Column("bucket", "int", "Partition column: -1 for `#`, else crc32(route_key) modulo 16", required=True),
        Column(
            "targets",
            "array<struct<shard:int,effective_from:timestamp,effective_until:timestamp>>",
            "Shards, and the append times [from, until) for which each wants the key",
            required=True,
        ),
        Column(
            "as_of", "timestamp", "On the row `#` only: all route events appended before this time are in the table"
        ),
    ),
    ("bucket",),
    ("route_key",),
)

ROUTES_HISTORY = Table(
    "routes_history",
    "Every route event.",
    (
        Column("shard", "int", "Shard that started or stopped wanting the key", required=True),
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
    "Who sent the message: `client` (an MQTT client), `http` (a program by POST), `will` (the gateway, for a client "
    "that was lost) or `platform` (on `$presence/…`); null in rows from before this column existed",
)

MESSAGES = Table(
    "messages",
    "Every accepted message, once: messages of clients, and the platform's own, which `origin` tells apart.",
    (
        Column("id", "string", "Message id, a UUID", required=True),
        Column("source", "string", "Client id of the sender", required=True),
        Column("destination", "string", "Topic name, or `@client-id`", required=True),
        Column("qos", "int", "QoS of the PUBLISH: 0, 1, 2", required=True),
        Column("retained", "boolean", "The RETAIN flag of the PUBLISH", required=True),
        Column(
            "flags",
            "string",
            "Findings of the source gateway, a letter each: `r` retained, `a` an attachment larger than "
            "`gateway.policy.attachments` allows, `w` a will, `h` posted over HTTP, `c` of a conversation, `n` one "
            "whose sender may be answered by the platform, `p` the platform's own; null in rows from before flags "
            "existed",
        ),
        ORIGIN,
        Column("expires", "timestamp", "Not delivered after this time; null: never expires"),
        Column("accepted", "timestamp", "When the source gateway accepted it, the gateway's clock", required=True),
        Column("sequence", "int", "Packet identifier of a QoS 2 message from a persistent session"),
        Column("payload", "binary", "Payload, as sent"),
        Column("payload_bytes", "long", "Length of the payload", required=True),
        Column("properties", "binary", "MQTT 5 properties forwarded with the message, in wire encoding"),
        Column("partition", "int", "Partition on `ingress`", required=True),
        Column("offset", "long", "Offset on `ingress`", required=True),
        Column("appended", "timestamp", "Append time on `ingress`, when Kafka stored it", required=True),
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
        Column("shard", "int", "Shard that delivers", required=True),
        Column("number", "int", "0 … n-1 within the message and scope", required=True),
        Column("limit", "int", "n, the touch count, on the last instruction only: the completion condition"),
        Column(
            "scope",
            "string",
            "`routed` (by the routes), or `everyone` (the routes were not known to be complete)",
            required=True,
        ),
        Column("router", "string", "Which router's copy came first: `active` or `backup`", required=True),
        Column("partition", "int", "Partition of the message on `ingress`", required=True),
        Column("offset", "long", "Offset of the message on `ingress`", required=True),
        Column("message_appended", "timestamp", "Append time of the message on `ingress`", required=True),
        Column("egress_offset", "long", "Offset on `egress`, whose partition is the shard", required=True),
        Column("appended", "timestamp", "Append time on `egress`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("partition", "offset", "message_appended", "shard", "scope"),
)

OUTCOMES = Table(
    "outcomes",
    "What became of every instruction, a row per recipient, and of every direct delivery.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("shard", "int", "Shard that reports; null for `untouched`"),
        Column(
            "number",
            "int",
            "Number of the instruction; null for `untouched`, and for a delivery without an instruction",
        ),
        Column("scope", "string", "Decision that the instruction belongs to; `routed` if there is no instruction"),
        Column(
            "path",
            "string",
            "How the message reached the recipient: `instructed` (by the routers), `direct` (from `ingress`, before "
            "its route took effect), `retained` (on SUBSCRIBE); null for `untouched`, and in old rows",
        ),
        Column(
            "offered",
            "timestamp",
            "For a retained message sent on SUBSCRIBE: when it was offered to the recipient, the gateway's clock; "
            "unique for each sending. Null in other rows",
        ),
        ORIGIN,
        Column(
            "client", "string", "Recipient, or `$share/<name>/<filter>` if no member was chosen; null if there was none"
        ),
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
            "Append time of the message on `ingress`; for a retained message sent on SUBSCRIBE, on `retained`",
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
        Column("touches", "int", "Touch count: how many instructions it had", required=True),
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
    "Every connect and disconnect of a client; the ledger adds the ends that a lost gateway cannot report.",
    (
        Column("client", "string", "Client id", required=True),
        Column("event", "string", "`connected`, `disconnected` or `lost` (it ended without DISCONNECT)", required=True),
        Column("gateway", "string", "Gateway of the connection", required=True),
        Column(
            "epoch",
            "long",
            "Identifies the connection of the client: the time of connecting in microseconds, always increasing. A row "
            "with the reason `gateway_restarted` has an epoch of its own",
            required=True,
        ),
        Column(
            "seq",
            "long",
            "Number of the event within the epoch; for events that the ledger adds, `at` in microseconds",
            required=True,
        ),
        Column(
            "at",
            "timestamp",
            "When it happened, the gateway's clock; with `gateway_lost` and `gateway_back` when that was found",
            required=True,
        ),
        Column("peer", "string", "Address of the client; only on `connected`"),
        Column("protocol", "string", "`mqtt3.1.1` or `mqtt5`, `+ws` over WebSocket, `+quic` over QUIC; on `connected`"),
        Column(
            "reason",
            "string",
            "Why the connection ended; null on `connected`. `gateway_lost`: its gateway was lost before it could "
            "report an end; `gateway_back`, on `connected`: such an end is taken back",
        ),
        Column("user", "string", "User that the client was authenticated as; null if none"),
        Column("appended", "timestamp", "Append time on `presence`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("client", "gateway", "epoch", "seq"),
)

PRESENCE = Table(
    "presence",
    "Which clients are online now, over all their attachments: one row per client.",
    (
        Column("client", "string", "Client id", required=True),
        Column("bucket", "int", "Partition column: crc32(client) modulo 16", required=True),
        Column("online", "boolean", "Whether any attachment is live", required=True),
        Column(
            "at",
            "timestamp",
            "When that changed, the gateway's clock; with `gateway_lost` when the gateway was found gone, or back "
            "without its clients, the broker's clock",
            required=True,
        ),
        Column("reason", "string", "Why it is offline; null while online"),
        Column(
            "attachments",
            "array<struct<gateway:string,attachment:string,boot:long,epoch:long,seq:long,live:boolean,since:timestamp,"
            "at:timestamp,peer:string,protocol:string,reason:string,user:string>>",
            "The known connections: gateway, whether live, since when, the last event, address, user",
            required=True,
        ),
        Column("updated", "timestamp", "Append time on `presence-state`", required=True),
    ),
    ("bucket",),
    ("client",),
)

MESSAGE_PRESENCE = Table(
    "message_presence",
    "Who has which message of the mesh, and what became of it: one row per message, as long as the record is kept.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column("bucket", "int", "Partition column: crc32(message_id) modulo 16", required=True),
        Column("state", "string", "`pending`, `expired` or `delivered`, which wins", required=True),
        Column("origin", "string", "Agent that originated the message"),
        Column("delivered_by", "string", "Agent of the earliest delivery"),
        Column("delivered_to", "string", "Recipient of that delivery"),
        Column("delivered", "timestamp", "Time of that delivery, the agent's clock"),
        Column("holders", "array<string>", "Agents that hold a copy", required=True),
        Column("attempting", "array<string>", "Those of them that are trying to deliver it", required=True),
        Column("refused", "array<string>", "Agents that do not hold it, or no longer", required=True),
        Column("claim_agent", "string", "Agent whose claim to deliver it was granted last"),
        Column("claim_until", "timestamp", "When that claim ends, the broker's clock"),
        Column("retired", "boolean", "Whether its originator no longer needs the record", required=True),
        Column("kept_until", "timestamp", "How long the record is kept", required=True),
        Column("updated", "timestamp", "Append time on `message-presence-state`", required=True),
    ),
    ("bucket",),
    ("message_id",),
)

MESSAGE_PRESENCE_HISTORY = Table(
    "message_presence_history",
    "Everything that agents have reported about messages.",
    (
        Column("message_id", "string", "Message id", required=True),
        Column(
            "event",
            "string",
            "`attempting`, `propagated`, `claimed`, `delivered`, `refused`, `expired` or `retired`",
            required=True,
        ),
        Column("agent", "string", "Agent that reported it", required=True),
        Column("origin", "string", "Agent on whose behalf it attempts delivery"),
        Column("peer", "string", "Agent or client that it was propagated or delivered to"),
        Column("reason", "string", "Why it was refused"),
        Column("at", "timestamp", "When it happened, the agent's clock", required=True),
        Column("until", "timestamp", "Requested end of the claim, or of keeping the record"),
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
        Column("topic", "string", "Topic of the record", required=True),
        Column("partition", "int", "Its partition", required=True),
        Column("offset", "long", "Its offset", required=True),
        Column("reason", "string", "What is wrong with it", required=True),
        Column("record", "binary", "Its value, cut at 64 KiB"),
        Column("record_appended", "timestamp", "Its append time there; null in rows from before this column existed"),
        Column("at", "timestamp", "When it was found", required=True),
        Column("appended", "timestamp", "Append time on `quarantine`", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("topic", "partition", "offset", "record_appended"),
)

QUALITY_RESULTS = Table(
    "quality_results",
    "Results of every run of the quality job: a row per expectation and judged date.",
    (
        Column("run_id", "string", "Run of the job, a UUID", required=True),
        Column("run_at", "timestamp", "When the run started, the job's clock", required=True),
        Column("suite", "string", "What must hold, as a group of expectations", required=True),
        Column("expectation", "string", "What must hold for one table, as a sentence", required=True),
        Column("table_name", "string", "Table whose rows were judged", required=True),
        Column("success", "boolean", "Whether it held", required=True),
        Column("judged", "long", "Rows of the date that were judged", required=True),
        Column("unexpected", "long", "How many of them, or how many gaps, were unexpected", required=True),
        Column(
            "observed",
            "double",
            "The compared value: `unexpected`, or a latency in milliseconds; null if there are too few rows to judge",
        ),
        Column("allowed", "double", "The largest value of `observed` that passes", required=True),
        Column("sample", "string", "Ids of some unexpected rows, one per line; null if there are none"),
        Column("table_version", "long", "Version of the table when the run started", required=True),
        Column("table_rows", "long", "Rows that the table had for the date, judged or not", required=True),
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
        # In this order: what is read of the second is then at least as new as what is read of the first.
        FEED_PROGRESS,
        FEED_COPIES,
        QUARANTINE,
        QUALITY_RESULTS,
    )
}

HISTORY = tuple(table for table in TABLES.values() if {"appended", "date"} <= {column.name for column in table.columns})
"""The tables filled from topics: append-only, each row dated by its own append time."""
