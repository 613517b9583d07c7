"""How many messages, with how many bytes, the spool and the retained messages have: kept, so that nothing is counted.
Both functions run in a transaction of the store's file (:mod:`.changes`)."""

import sqlite3

from edge.agent.mqtt.sessions import SQL


def used(db: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Messages and bytes."""
    row = db.execute(SQL["used"], (name,)).fetchone()
    return (int(row[0]), int(row[1])) if row is not None else (0, 0)


def use(db: sqlite3.Connection, name: str, messages: int, size: int) -> None:
    """So many more; negative: fewer."""
    db.execute(SQL["use"], (name, messages, size))
