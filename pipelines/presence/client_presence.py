"""Client presence: parses records of `presence` into events, and folds a client's events into its state (R12).

The merging itself is in :mod:`pipelines.presence.attachments`. :mod:`pipelines.presence.liveness` judges gateways, and
:mod:`pipelines.presence.client_presence_sink` publishes the result.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.presence import attachments, lost_connections
from pipelines.presence.attachments import Known, ReportedEvent
from pipelines.presence.liveness import Sign
from pipelines.records import Complaint, Format, complaint, event_format, moment_us, parsed, text
from schemas.events import PresenceEvent, decode_good
from schemas.states import GATEWAY_MARK, GatewayState, PresenceState

CLIENT, GATEWAY, TICK = "client", "gateway", "tick"
_KNOWN = msgspec.json.Decoder(list[Known])


class Changed(NamedTuple):
    """A client has changed: its attachments now and `before`. `superseded` are connections that a newer boot of their
    gateway ended without a report, each with the time of the event that shows it (µs since the epoch)."""

    client: str
    known: list[Known]
    before: list[Known]
    superseded: list[tuple[ReportedEvent, int]]


def presence_format() -> Format:
    """The format of `presence`."""

    def more(event: Column) -> list[Complaint]:
        is_tick = event["event"] == "tick"
        of_gateway = event["event"].isin("heartbeat", "disconnected")
        return [
            complaint(~is_tick & (event["gateway"] == ""), "gateway is missing"),
            complaint(~is_tick & ~of_gateway & (event["client"] == ""), "client is missing"),
            complaint(event["client"].startswith(GATEWAY_MARK), "client begins with U+0000"),
        ]

    return event_format(PresenceEvent, more)


def reported(records: DataFrame) -> DataFrame:
    """Events as :func:`fold` takes them: `kind, name, partition, offset, appended_ms` and the fields of
    `ReportedEvent`.

    `kind` and `name` are: client, with the client id; gateway, an event of a gateway about itself, with the gateway's
    name; tick, with the partition. A gateway and a client may have the same name. Events that this application itself
    adds (:mod:`pipelines.presence.lost_connections`) follow from the state and are left out.
    """
    event = F.col("record")
    is_tick, of_client = event["event"] == "tick", event["client"] != ""
    texts = {name: F.coalesce(event[name], F.lit("")) for name in ("peer", "protocol", "reason", "user", "attachment")}
    numbers = {"boot": F.coalesce(event["boot"], F.lit(0))}
    fields = {name: event[name] for name in ReportedEvent._fields} | texts | numbers
    name = F.when(of_client, event["client"]).when(is_tick, F.col("partition").cast("string"))
    is_own = F.coalesce(event["reason"].isin(*lost_connections.REASONS), F.lit(False))
    return (
        parsed(records, presence_format())
        .where(~is_own)
        .select(
            F.when(of_client, CLIENT).when(is_tick, TICK).otherwise(GATEWAY).alias("kind"),
            name.otherwise(event["gateway"]).alias("name"),
            "partition",
            "offset",
            F.unix_millis("timestamp").alias("appended_ms"),
            *(column.alias(name) for name, column in fields.items()),
        )
    )


def begun(published: bytes) -> bytes | None:
    """The state of a client, rebuilt from its record on `presence-state`; None if that cannot be read. It may cover
    events that `presence` no longer has, and what it says is not reported again."""
    state = decode_good(PresenceState, published)
    return None if state is None else msgspec.json.encode(attachments.known_from(state))


def fold(most: int, state: bytes | None, client: str, rows: list[Row]) -> tuple[bytes, list[Changed]]:
    """Folds the rows of :func:`reported` of one client: its new state, and a `Changed` if it has changed. For
    :class:`pipelines.storage.keyed_states.KeyedStates`."""
    old = [] if state is None else _KNOWN.decode(state)
    events = [ReportedEvent(*(row[field] for field in ReportedEvent._fields)) for row in rows]
    new, superseded = attachments.after(old, events, most), lost_connections.superseded(old, events)
    has_news = bool(superseded) or attachments.is_news(old, new)
    return msgspec.json.encode(new), [Changed(client, new, old, superseded)] if has_news else []


def last_used_ms(gateways: Mapping[str, GatewayState], state: bytes, now_ms: int) -> int:
    """When a client, whose state :func:`fold` gave, was last online according to others, ms since the epoch."""
    return attachments.last_used_ms(_KNOWN.decode(state), gateways, now_ms)


def signs(rows: Iterable[Row]) -> list[Sign]:
    """What rows of :func:`reported` say about gateways: the last sign of each."""
    reports = sorted((row for row in rows if row.kind == GATEWAY), key=lambda row: (row.boot, row.offset))
    last = {row.name: row for row in reports}
    return [Sign(row.name, row.boot, row.appended_ms, row.event == "disconnected") for row in last.values()]


def ticks(rows: Iterable[Row]) -> dict[int, list[int]]:
    """The append times of the ticks among rows of :func:`reported`, by partition, ms since the epoch, in order."""
    found: dict[int, list[int]] = {}
    for row in sorted((row for row in rows if row.kind == TICK), key=lambda row: row.offset):
        found.setdefault(row.partition, []).append(row.appended_ms)
    return found


def state_format() -> Format:
    """The format of `presence-state`: `record` has the state of a `client` or of a `gateway`."""

    def is_gateway() -> Column:
        return F.coalesce(F.col("key").cast("string").startswith(GATEWAY_MARK), F.lit(False))

    def of_client(state: Column) -> list[Complaint]:
        return [complaint(~text("key").eqNullSafe(state["client"]), "the key is not the client id")]

    def of_gateway(state: Column) -> list[Complaint]:
        key = F.concat(F.lit(GATEWAY_MARK), state["gateway"])
        return [complaint(~text("key").eqNullSafe(key), "the key is not that of the gateway")]

    client, gateway = event_format(PresenceState, of_client), event_format(GatewayState, of_gateway)

    def parse() -> Column:
        return F.struct(
            F.when(~is_gateway(), client.parse()).alias("client"),
            F.when(is_gateway(), gateway.parse()).alias("gateway"),
        )

    def complaints(state: Column) -> list[Complaint]:
        return [
            *(Complaint(~is_gateway() & one.bad, one.words) for one in client.complaints(state["client"])),
            *(Complaint(is_gateway() & one.bad, one.words) for one in gateway.complaints(state["gateway"])),
        ]

    return Format(parse, complaints)


def columns() -> list[Column]:
    """The columns of `presence`, except `bucket`, from a record of `presence-state`; null if the record is a
    gateway's."""

    def attachment(published: Column) -> Column:
        return F.struct(
            *(published[name].alias(name) for name in ("gateway", "attachment", "boot", "epoch", "seq", "live")),
            moment_us(published["since_us"]).alias("since"),
            moment_us(published["at_us"]).alias("at"),
            *(_word(published, name) for name in ("peer", "protocol", "reason", "user")),
        )

    state = F.col("record.client")
    return [
        state["client"].alias("client"),
        state["online"].alias("online"),
        moment_us(state["at_us"]).alias("at"),
        _word(state, "reason"),
        F.transform(state["attachments"], attachment).alias("attachments"),
        F.col("timestamp").alias("updated"),
    ]


def _word(struct: Column, name: str) -> Column:
    return F.nullif(struct[name], F.lit("")).alias(name)
