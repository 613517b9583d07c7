"""Message presence: folds records of `message-presence` into what is known of each message (M9, M11, M12, M13).

The merging itself is in :mod:`pipelines.presence.custody`.
"""

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.ledger.history import appended
from pipelines.presence import custody
from pipelines.presence.custody import AgentReport, Custody, Limits
from pipelines.records import (
    SKEW,
    Complaint,
    Format,
    complaint,
    event_format,
    judged,
    moment_ms,
    moment_us,
    parsed,
    text,
)
from schemas.events import NAME_CHARACTERS, MessagePresenceEvent, decode_good
from schemas.states import MessagePresenceState

_CUSTODY = msgspec.json.Decoder(Custody)
_NAMES = ("id", "agent", "origin", "peer")
_TEXTS = ("origin", "peer", "reason")


def message_presence_format() -> Format:
    """The format of `message-presence`."""

    def more(event: Column) -> list[Complaint]:
        early = F.col("timestamp") + F.expr(SKEW)
        needs_peer = event["event"].isin("propagated", "delivered")
        return [
            complaint(event["id"] == "", "id is empty"),
            complaint(event["agent"] == "", "agent is empty"),
            *(
                complaint(
                    F.length(event[name]) > NAME_CHARACTERS, f"{name} is longer than {NAME_CHARACTERS} characters"
                )
                for name in _NAMES
            ),
            complaint(needs_peer & (F.coalesce(event["peer"], F.lit("")) == ""), "peer is missing"),
            complaint(
                moment_us(event["at_us"]) > early, "at_us is after the record's append time, ", F.col("timestamp")
            ),
        ]

    return event_format(MessagePresenceEvent, more)


def reported(records: DataFrame) -> DataFrame:
    """Events as :func:`fold` takes them: `id` and the fields of `AgentReport`."""
    event = F.col("record")
    return parsed(records, message_presence_format()).select(
        event["id"].alias("id"),
        "offset",
        F.unix_millis("timestamp").alias("appended_ms"),
        *(event[name].alias(name) for name in ("event", "agent", "at_us")),
        *(F.coalesce(event[name], F.lit("")).alias(name) for name in _TEXTS),
        F.coalesce(event["until_us"], F.lit(0)).alias("until_us"),
    )


def begun(published: bytes) -> bytes | None:
    """The state of a message, rebuilt from its record on `message-presence-state`; None if that cannot be read. It is
    the only source for events that `message-presence` no longer has."""
    state = decode_good(MessagePresenceState, published)
    return None if state is None else msgspec.json.encode(custody.known_from(state))


def fold(
    limits: Limits, state: bytes | None, message_id: str, rows: list[Row]
) -> tuple[bytes, list[MessagePresenceState]]:
    """Folds the rows of :func:`reported` of one message: its new state, and the state to publish if it has changed. For
    :class:`pipelines.storage.keyed_states.KeyedStates`."""
    old = Custody() if state is None else _CUSTODY.decode(state)
    new = custody.after(old, (AgentReport(*(row[field] for field in AgentReport._fields)) for row in rows), limits)
    return msgspec.json.encode(new), [custody.state_of(message_id, new)] if custody.is_news(old, new) else []


def last_used_ms(kept_ms: int, _message: str, state: bytes, _now_ms: int) -> int:
    """The time from which the record of a message, whose state :func:`fold` gave, is kept for `kept_ms`; ms since the
    epoch."""
    return _CUSTODY.decode(state).kept_until_ms - kept_ms


def history(records: DataFrame) -> DataFrame:
    """Rows of `message_presence_history`: every event, unchanged (M9)."""
    event = F.col("record")
    texts = [F.nullif(event[name], F.lit("")).alias(name) for name in _TEXTS]
    return judged(records, message_presence_format()).select(
        event["id"].alias("message_id"),
        event["event"].alias("event"),
        event["agent"].alias("agent"),
        *texts,
        moment_us(event["at_us"]).alias("at"),
        moment_us(F.nullif(event["until_us"], F.lit(0))).alias("until"),
        "partition",
        "offset",
        *appended(),
        "quarantined",
    )


def state_format() -> Format:
    """The format of `message-presence-state`."""

    def more(state: Column) -> list[Complaint]:
        return [complaint(~text("key").eqNullSafe(state["id"]), "the key is not the id")]

    return event_format(MessagePresenceState, more)


def columns() -> list[Column]:
    """The columns of `message_presence`, except `bucket`, from a record of `message-presence-state`."""
    state = F.col("record")
    return [
        state["id"].alias("message_id"),
        state["state"].alias("state"),
        *(F.nullif(state[name], F.lit("")).alias(name) for name in ("origin", "delivered_by", "delivered_to")),
        moment_us(F.nullif(state["delivered_us"], F.lit(0))).alias("delivered"),
        *(state[name].alias(name) for name in ("holders", "attempting", "refused")),
        state["claim"]["agent"].alias("claim_agent"),
        moment_ms(state["claim"]["until_ms"]).alias("claim_until"),
        state["retired"].alias("retired"),
        moment_ms(state["kept_until_ms"]).alias("kept_until"),
        F.col("timestamp").alias("updated"),
    ]
