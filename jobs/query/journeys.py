"""The journeys of messages: everything that happened to each, in chronological order; at equal times in order of
steps."""

from collections.abc import Iterator, Sequence

from jobs.errors import QueryError
from jobs.query.ledger_reader import LedgerReader, Result, Rows

COLUMNS = '"at", step, who, detail'
ORDER = '"at", step_order, who, detail'
JOURNEY = f"SELECT {COLUMNS} FROM message_journey WHERE message_id = ? ORDER BY {ORDER}"
JOURNEYS = f"""
SELECT message_id, {COLUMNS} FROM message_journey
WHERE message_id IN (SELECT unnest($ids)) ORDER BY list_position($ids, message_id), {ORDER}
"""
NEWEST = "SELECT id FROM messages WHERE {condition} GROUP BY id ORDER BY max(accepted) DESC, id DESC LIMIT ?"
NEWEST_MESSAGES = """
SELECT id, epoch_us(accepted), source, destination, qos FROM messages
WHERE {condition} ORDER BY accepted DESC, id DESC LIMIT ?
"""
"""Without grouping by id, which would take memory for all that match: an id that was used twice comes twice."""
FIRST_STEPS = f"""
SELECT epoch_us("at"), step, who, detail FROM message_journey WHERE message_id = ? ORDER BY {ORDER} LIMIT ?
"""
TABLES_OF_JOURNEYS = ("messages", "instructions", "outcomes", "completions", "message_presence_history")
"""The tables that are read for all this."""
OF_CLIENTS = "destination NOT LIKE '$%'"
"""Excludes the platform's own messages."""


def journey(reader: LedgerReader, message_id: str) -> Rows:
    """The steps of a message, as values; none if the ledger does not have it. Raises QueryError."""
    return reader.query(JOURNEY, [message_id])


def first_steps(reader: LedgerReader, message_id: str, most: int) -> list[tuple[int, str, str, str]]:
    """The first steps of a message: time in µs since the epoch, step, who, detail. Raises QueryError."""
    found = reader.query(FIRST_STEPS, [message_id, most]).rows
    return [(at, step, who or "", detail or "") for at, step, who, detail in found]


def has_begun(step: str) -> bool:
    """Whether a message may begin with this step: accepted by a gateway, or reported by an agent of the mesh."""
    return step == "accepted" or step.startswith("mesh: ")


def newest_messages(
    reader: LedgerReader, most: int, topic: str = "", client: str = ""
) -> list[tuple[str, int, str, str, int]]:
    """The last accepted messages on a topic, from a client, of both, or else of all clients, newest first: id, time in
    µs since the epoch, source, destination, QoS. Raises QueryError."""
    wanted = {"destination = ?": topic, "source = ?": client}
    given = {condition: value for condition, value in wanted.items() if value}
    condition = " AND ".join(given) or OF_CLIENTS
    found = reader.query(NEWEST_MESSAGES.format(condition=condition), [*given.values(), 2 * most]).rows
    first: dict[str, tuple[str, int, str, str, int]] = {}
    for row in found:
        first.setdefault(row[0], row)
    return list(first.values())[:most]


def printed_journey(reader: LedgerReader, message_id: str) -> Result:
    """The same, for printing. Raises QueryError if the ledger does not have the message."""
    _refuse_unknown(reader, message_id)
    return next(reader.results(JOURNEY, [message_id]))


def printed_journeys(reader: LedgerReader, ids: Sequence[str]) -> Iterator[Result]:
    """The journeys of several messages as one result, with the additional column `message_id`."""
    for message_id in ids:
        _refuse_unknown(reader, message_id)
    return reader.results(JOURNEYS, {"ids": list(ids)})


def newest(reader: LedgerReader, most: int, topic: str | None = None) -> list[str]:
    """The ids of the last accepted messages, of one topic or of all published by clients, oldest first.

    Raises QueryError if there are none.
    """
    condition, parameters = (OF_CLIENTS, []) if topic is None else ("destination = ?", [topic])
    found = reader.query(NEWEST.format(condition=condition), [*parameters, most]).rows
    if not found:
        where = "from a client" if topic is None else f"on the topic {topic}"
        raise QueryError(
            f"the ledger has no message {where}: if it was just published, try again in a few seconds; give the "
            f"whole topic, without wildcards"
        )
    return [message_id for (message_id,) in reversed(found)]


def no_message(message_id: str) -> QueryError:
    return QueryError(
        f"the ledger has no message {message_id}: check the id; if the message was just published, try again in a few "
        f"seconds"
    )


def _refuse_unknown(reader: LedgerReader, message_id: str) -> None:
    if not journey(reader, message_id).rows:
        raise no_message(message_id)
