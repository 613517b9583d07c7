"""The log of ways in the node's file, and what the agent needs there in the same transactions (M2, M20, M21).

A message has an id of its own, by which programs know it, and travels in a bundle, which has another. The table
`bundle_of` connects both, here and at the recipient's agent; carriers in between know the bundle's only.

A mail is sealed to its recipient, so its sender's agent cannot read it again. Its envelope and its header are kept in
`own_mail` until it is delivered; if it is refused or expires instead, until the report to its sender is on disk. Each
of these changes is in the commit of the node that it belongs to, so no kill loses a mail silently.

`taken_from` has the number of the newest message of the MQTT stand-in's spool that the node has taken: what is handed
in again after a kill is recognised by it. It counts in one incarnation of the spool's file (:mod:`..mqtt.exact_store`).
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from edge.agent import way
from edge.agent.agent_store import Failed
from edge.agent.dsn import head_of
from edge.agent.way import Step, WayLog
from edge.client.sqlite_file import create_tables
from edge.node import batch as node_batch
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
PART: Final = "mesh"
ARRIVING_MAX: Final = 1_000
_HANDED_OVER: Final = "handed over"  # the node's step of a message that the agent has taken


class Origin(NamedTuple):
    """Where a message of this agent comes from: its id; `part` and `event` of the step that says so; of a mail its
    envelope and content; of a message of the spool its lane, the incarnation of the spool's file, and its number."""

    id: str
    part: str
    event: str
    properties: list[tuple[str, str]]
    mail: bytes | None = None
    lane: str = ""
    spool: int = 0
    number: int = 0


class MeshLog:
    """A :class:`edge.node.bundle_store.StepLog`. `begins`, `arrives` and `take_news` are called on the event
    loop, the others on the file's thread, in its transactions."""

    def __init__(self, entries: int) -> None:
        self._log, self._entries = WayLog(entries), entries
        self._beginning: dict[str, Origin] = {}
        self._arriving: OrderedDict[str, str] = OrderedDict()
        self._may_have_failed = True  # perhaps in an earlier process

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def begins(self, bundle: str, origin: Origin) -> None:
        """A bundle of ours is about to be committed."""
        self._beginning[bundle] = origin

    def arrives(self, bundle: str, message: str) -> None:
        """A message has come in a bundle, and the agent is about to take it."""
        self._arriving[bundle] = message
        if len(self._arriving) > ARRIVING_MAX:
            self._arriving.popitem(last=False)

    @property
    def step_counts(self) -> dict[tuple[str, str], int]:
        """See :attr:`edge.agent.way.WayLog.counts`. From any thread."""
        return dict(self._log.counts)

    def take_news(self) -> bool:
        """Whether mails may have failed since the last call."""
        may_have, self._may_have_failed = self._may_have_failed, False
        return may_have

    def try_again(self) -> None:
        """A sender could not be told yet: there is news."""
        self._may_have_failed = True

    # -- in the node's transactions ------------------------------------------------------------------------------------

    def prepare(self, db: sqlite3.Connection) -> None:
        """Makes the tables that are missing."""
        self._log.prepare(db)
        create_tables(db, _SQL["schema"])

    def add(self, db: sqlite3.Connection, steps: Iterable[node_batch.Step]) -> None:
        """Writes the node's steps down, with what follows from them."""
        written, names = [], []
        for step in steps:
            # If this commit fails the message is refused: what it began with is not needed again.
            origin = self._beginning.pop(step.id, None) if step.event == way.ACCEPTED else None
            if origin is not None:
                written.append(
                    Step(origin.id, step.at_s, origin.part, origin.event, f"{step.detail}, as bundle {step.id}")
                )
                names.append((step.id, origin.id))
                self._keep(db, step.id, origin)
                continue
            if step.event == _HANDED_OVER and step.id in self._arriving:
                names.append((step.id, self._arriving[step.id]))
            elif step.event in (way.DELIVERED, way.ACKNOWLEDGED):
                db.execute(_SQL["delivered"], (step.id,))
            elif step.event in (way.REFUSED, way.EXPIRED):
                changed = db.execute(_SQL["fails"], (step.event, step.detail or step.event, step.id)).rowcount
                self._may_have_failed |= bool(changed)
            written.append(Step(step.id, step.at_s, PART, step.event, step.detail))
        self._log.add(db, written)
        if names:
            db.executemany(_SQL["name"], names)
            db.execute(_SQL["bound_names"], (self._entries,))

    # -- asked on the file's thread ------------------------------------------------------------------------------------

    def newest(self, db: sqlite3.Connection, count: int) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.newest`."""
        return self._log.newest(db, count)

    def steps_of(self, db: sqlite3.Connection, identifier: str) -> list[Step]:
        """See :meth:`edge.agent.way.WayLog.of_message`."""
        return self._log.of_message(db, identifier)

    def names_of(self, db: sqlite3.Connection, identifier: str) -> list[str]:
        """The ids under which a message may be logged: its own first, and those of its bundles; given any of them."""
        messages = [row[0] for row in db.execute(_SQL["messages"], (identifier,))] or [identifier]
        bundles = [row[0] for message in messages for row in db.execute(_SQL["bundles"], (message,))]
        return list(dict.fromkeys([*messages, *bundles, identifier]))

    def first_failed(self, db: sqlite3.Connection) -> Failed | None:
        """The oldest mail that failed and whose sender does not know."""
        row = db.execute(_SQL["failed"]).fetchone()
        if row is None:
            return None
        number, state, reason, properties, head = row
        return Failed(number, state, reason, msgspec.msgpack.decode(properties, type=list[tuple[str, str]]), head)

    def forget_failed(self, db: sqlite3.Connection, number: int) -> None:
        """The sender knows, or cannot be told."""
        db.execute(_SQL["forget"], (number,))

    def position(self, db: sqlite3.Connection, lane: str, spool: int) -> int:
        """The number of the newest message of a lane of the spool in the file of this incarnation; 0: none."""
        row = db.execute(_SQL["position"], (lane, spool)).fetchone()
        return int(row[0]) if row is not None else 0

    # -- inside --------------------------------------------------------------------------------------------------------

    def _keep(self, db: sqlite3.Connection, bundle: str, origin: Origin) -> None:
        if origin.mail is not None:
            properties = msgspec.msgpack.encode(origin.properties)
            db.execute(_SQL["keep"], (bundle, properties, head_of(origin.mail)))
        if origin.lane:
            db.execute(_SQL["set_position"], (origin.lane, origin.spool, origin.number))
