"""The Delta tables of redundant feeds (S5); :mod:`schemas.tables` has the others."""

from schemas.table import DATE_DOC, Column, Table

FEED_COPIES = Table(
    "feed_copies",
    "Every copy of a message of a redundant feed, once for each of the two slots: what the two adapters wrote.",
    (
        Column("feed", "string", "Name of the feed", required=True),
        Column("stream", "string", "Source stream id, `name@epoch`", required=True),
        Column("name", "string", "Name of the source stream, without its epoch", required=True),
        Column("epoch", "long", "Epoch of the source stream: a new one when its numbers begin anew", required=True),
        Column("sequence", "long", "Number of the message in the source stream", required=True),
        Column(
            "part",
            "long",
            "0 for a message of the source; k for the k-th administrative message after message `sequence`",
            required=True,
        ),
        Column("slot", "string", "`active` or `backup`: the half of the topic's partitions it is on", required=True),
        Column("adapter", "string", "Adapter that wrote it", required=True),
        Column("message_sequence", "long", "How many messages the adapter had written before it", required=True),
        Column("read", "timestamp", "When the adapter read it, its clock; null if that is after the year 9999"),
        Column("crc32", "long", "CRC-32 of the payload", required=True),
        Column("payload_bytes", "long", "Length of the payload", required=True),
        Column("payload", "binary", "Payload; null if it is empty, or `ledger.feed_payloads` was off"),
        Column("partition", "int", "Partition on the feed's topic", required=True),
        Column("offset", "long", "Offset on the feed's topic", required=True),
        Column("appended", "timestamp", "Append time on the feed's topic", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("feed", "stream", "sequence", "part", "slot"),
)

FEED_PROGRESS = Table(
    "feed_progress",
    "What each batch of the ledger brought of each source stream and slot of a redundant feed.",
    (
        Column("feed", "string", "Name of the feed", required=True),
        Column("stream", "string", "Source stream id, `name@epoch`", required=True),
        Column("slot", "string", "`active` or `backup`", required=True),
        Column("adapter", "string", "Adapter that wrote the last of its records", required=True),
        Column("copies", "long", "New copies: rows of `feed_copies`", required=True),
        Column("duplicates", "long", "Copies that the slot had already brought, and that have no row", required=True),
        Column("highest", "long", "Highest number of these copies; null if there were none"),
        Column("passed", "long", "The adapter said that it brings nothing more up to this number; null if it did not"),
        Column("partition", "int", "Partition on the feed's topic", required=True),
        Column("offset", "long", "Offset of the last of these records on the feed's topic", required=True),
        Column("appended", "timestamp", "Append time of that record", required=True),
        Column("date", "date", DATE_DOC, required=True),
    ),
    ("date",),
    ("feed", "stream", "partition", "offset", "appended"),
)
