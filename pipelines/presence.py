"""Client presence: records of `presence` in, what has changed about each client, gateway and partition out (R12).

The merging itself is :mod:`pipelines.attachments`; gateways are judged by :mod:`pipelines.liveness`, and what becomes
of it all is :mod:`pipelines.presence_sink`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines import attachments
from pipelines.attachments import Heard, Known
from pipelines.keyed_state import FirstStates, folded
from pipelines.records import Complaint, Format, complaint, event_format, moment_us, parsed, text
from schemas.events import PresenceEvent, decode_good
from schemas.states import GATEWAY_MARK, GatewayState, PresenceState

CLIENT, GATEWAY, TICK = "client", "gateway", "tick"
KEY = ("kind", "name")
"""A gateway and a client may have the same name."""

CHANGED = "kind string, name string, partition int, appended_ms long, known string, boot long, ended boolean"
_KNOWN = msgspec.json.Decoder(list[Known])


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


def heard(records: DataFrame) -> DataFrame:
    """Events as the fold takes them: `kind, name, partition, offset, appended_ms` and the fields of `Heard`."""
    event = F.col("record")
    is_tick, of_client = event["event"] == "tick", event["client"] != ""
    texts = {name: F.coalesce(event[name], F.lit("")) for name in ("peer", "protocol", "reason", "user", "attachment")}
    numbers = {"boot": F.coalesce(event["boot"], F.lit(0))}
    fields = {name: event[name] for name in Heard._fields} | texts | numbers
    name = F.when(of_client, event["client"]).when(is_tick, F.col("partition").cast("string"))
    return parsed(records, presence_format()).select(
        F.when(of_client, CLIENT).when(is_tick, TICK).otherwise(GATEWAY).alias("kind"),
        name.otherwise(event["gateway"]).alias("name"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("appended_ms"),
        *(column.alias(name) for name, column in fields.items()),
    )


def changes(records: DataFrame, most: int, kept_s: int, told: DataFrame | None = None) -> DataFrame:
    """Records of `presence` as what has changed, at most one row a client, gateway and partition in each batch.

    A query without state begins with that of clients in `told`, what `presence-state` says now: it may know of more
    than `presence` still has, and nobody is told again what it says.

    * `kind` client: `name`, `known` its attachments (see `known_of`), `appended_ms` of its first event in the batch
    * `kind` gateway: `name`, `boot`, `appended_ms` of its last sign of life, whether it has `ended`
    * `kind` tick: `partition`, `appended_ms` of its last tick
    """
    return folded(heard(records), KEY, partial(_fold, most), CHANGED, kept_s, _first_states(told))


def _first_states(told: DataFrame | None) -> FirstStates | None:
    if told is None:
        return None
    clients = told.where("record.client IS NOT NULL")
    return FirstStates(
        clients.select(F.lit(CLIENT).alias("kind"), F.col("record.client.client").alias("name"), "value"), _begun
    )


def _begun(told: bytes) -> str | None:
    state = decode_good(PresenceState, told)
    return None if state is None else msgspec.json.encode(attachments.known_from(state)).decode()


def known_of(text: str) -> list[Known]:
    """The attachments in a row of :func:`changes`."""
    return _KNOWN.decode(text)


def state_format() -> Format:
    """The format of `presence-state`: `record` has the state of a `client`, or of a `gateway`."""

    def is_gateway() -> Column:
        return F.coalesce(F.col("key").cast("string").startswith(GATEWAY_MARK), F.lit(False))

    def of_client(state: Column) -> list[Complaint]:
        return [complaint(~text("key").eqNullSafe(state["client"]), "the key is not the client")]

    def of_gateway(state: Column) -> list[Complaint]:
        key = F.concat(F.lit(GATEWAY_MARK), state["gateway"])
        return [complaint(~text("key").eqNullSafe(key), "the key is not the gateway's")]

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


def rows(latest: DataFrame) -> DataFrame:
    """Rows of `presence`, but for `bucket`, of the latest records of `presence-state`: those of clients."""

    def attachment(told: Column) -> Column:
        return F.struct(
            *(told[name].alias(name) for name in ("gateway", "attachment", "boot", "epoch", "seq", "live")),
            moment_us(told["since_us"]).alias("since"),
            moment_us(told["at_us"]).alias("at"),
            *(_word(told, name) for name in ("peer", "protocol", "reason", "user")),
        )

    state = F.col("record.client")
    return latest.where(state.isNotNull()).select(
        state["client"].alias("client"),
        state["online"].alias("online"),
        moment_us(state["at_us"]).alias("at"),
        _word(state, "reason"),
        F.transform(state["attachments"], attachment).alias("attachments"),
        F.col("timestamp").alias("updated"),
    )


def _word(struct: Column, name: str) -> Column:
    return F.nullif(struct[name], F.lit("")).alias(name)


def _fold(most: int, state: str | None, key: tuple[Any, ...], rows: Iterable[Row]) -> tuple[str | None, list[Row]]:
    kind, name = key
    if kind == CLIENT:
        return _fold_client(most, state, name, rows)
    last = max(rows, key=lambda row: (row.boot, row.offset))
    ended = last.event == "disconnected"
    return None, [_changed(kind, name, last.partition, last.appended_ms, boot=last.boot, ended=ended)]


def _fold_client(most: int, state: str | None, name: str, rows: Iterable[Row]) -> tuple[str, list[Row]]:
    old = [] if state is None else known_of(state)
    first, events = None, []
    for row in rows:
        events.append(Heard(*(row[field] for field in Heard._fields)))
        first = row if first is None or row.appended_ms < first.appended_ms else first
    new = attachments.after(old, events, most)
    text = msgspec.json.encode(new).decode()
    if first is None or not attachments.is_news(old, new):
        return text, []
    return text, [_changed(CLIENT, name, first.partition, first.appended_ms, known=text)]


def _changed(
    kind: str, name: str, partition: int, appended_ms: int, known: str = "", boot: int = 0, ended: bool = False
) -> Row:
    fields = {"kind": kind, "name": name, "partition": partition, "appended_ms": appended_ms}
    return Row(**fields, known=known, boot=boot, ended=ended)
