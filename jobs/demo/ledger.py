"""What the ledger says about the demo's messages, queried with SQL once they have been delivered."""

from pathlib import Path
from typing import NamedTuple

from jobs.audit.completeness import completeness_watermarks
from jobs.errors import QueryError
from jobs.query.journeys import journey as message_journey
from jobs.query.ledger_reader import LedgerReader, Rows

COUNTS = """
WITH mine AS (SELECT id FROM messages WHERE source <> '$presence')
SELECT count(*),
       count(DISTINCT id),
       count(*) FILTER (WHERE id NOT IN (SELECT message_id FROM completions)),
       (SELECT count(DISTINCT (message_id, client)) FROM outcomes
        WHERE outcome IN ('delivered', 'sent') AND origin IS DISTINCT FROM 'platform'),
       (SELECT count(*) FROM completions WHERE message_id IN (SELECT id FROM mine))
FROM mine
"""
"""Only messages published by clients: the platform's own messages report who connects and disconnects."""
REPORTS = "SELECT count(*) FROM messages WHERE destination LIKE '$presence/%'"
"""Messages that report who connects and disconnects."""
FIND = "SELECT id FROM messages WHERE destination = ? AND decode(payload) LIKE ? LIMIT 1"
LATE_TABLES = ("routes_history", "presence_history", "presence")
"""Every client's subscriptions and connections add rows to these, too many to count with the clients."""


class Standing(NamedTuple):
    """`messages`: rows; `copies`: those of them that are repeated; `incomplete`: those without completion;
    `deliveries`: pairs of message and recipient; `rows` of every table, of `messages` and `completions` only those of
    clients' messages; `reports`: messages of the platform about clients; `routes_known`: whether all routes of the
    messages are in the ledger, so that each can be audited."""

    messages: int
    copies: int
    incomplete: int
    deliveries: int
    rows: dict[str, int]
    reports: int = 0
    routes_known: bool = False

    @property
    def quarantined(self) -> int:
        """Unparsable records: the demo writes none."""
        return self.rows.get("quarantine", 0)

    @property
    def behind(self) -> list[str]:
        """What the queries that start last have yet to bring: tables without rows, and routes."""
        return [name for name in LATE_TABLES if not self.rows.get(name)] + ["routes"] * (not self.routes_known)

    def missing(self, published: int) -> int:
        """Messages that are not in the ledger or not complete."""
        return max(0, published - self.messages) + self.incomplete

    def left(self, published: int, delivered: int) -> int:
        """How much the ledger still lacks in all; 0 once it has everything."""
        return self.missing(published) + self.unrecorded(delivered) + len(self.behind)

    def unrecorded(self, delivered: int) -> int:
        """Deliveries that clients have counted and the ledger lacks. The ledger may have more: those sent at QoS 0."""
        return max(0, delivered - self.deliveries)


class Patience:
    """How long to wait for the ledger: while it makes progress, and `patience_s` longer."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._least: int | None = None
        self._advanced_at = 0.0

    def is_over(self, left: int, now: float) -> bool:
        """Whether `left` (:meth:`Standing.left`) has not decreased for `patience_s` before `now`."""
        if self._least is None or left < self._least:
            self._least, self._advanced_at = left, now
        return now - self._advanced_at > self._patience_s


def standing(tables: Path) -> Standing:
    """The ledger at present; tables not written yet count as empty."""
    reader = LedgerReader(str(tables))
    rows = {name: int(reader.query(f"SELECT count(*) FROM {name}").rows[0][0]) for name in reader.tables}
    try:
        messages, distinct, incomplete, deliveries, completions = reader.query(COUNTS).rows[0]
        reports = int(reader.query(REPORTS).rows[0][0])
    except QueryError:
        return Standing(0, 0, 0, 0, rows)
    rows |= {"messages": messages, "completions": completions}
    watermarks = completeness_watermarks(str(tables), patience_s=0)
    routes_known = bool(watermarks.routes and watermarks.messages and watermarks.routes > watermarks.messages)
    return Standing(messages, messages - distinct, incomplete, deliveries, rows, reports, routes_known)


def journey(tables: Path, destination: str, body_id: str) -> tuple[str, Rows] | None:
    """The ledger's id of the message whose body has `body_id`, and everything that happened to it; None if it is
    missing."""
    reader = LedgerReader(str(tables))
    try:
        found = reader.query(FIND, [destination, f'%"id": "{body_id}"%']).rows
        return (found[0][0], message_journey(reader, found[0][0])) if found else None
    except QueryError:
        return None
