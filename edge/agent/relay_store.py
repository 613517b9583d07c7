"""Mails that wait for a mail server, on disk (M2, M16): one file, from which a mail goes only when it has ended.

Each method is one transaction, with its steps in the log of ways. `clock_s` is by :mod:`edge.client.store_clock`, so
setting the clock ages no mail. Ids of finished mails are remembered: a repetition is recognised.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.agent import relay_decisions as decisions
from edge.agent import way
from edge.agent.agent_file import AgentFile
from edge.agent.envelope import Mail
from edge.agent.relay_decisions import Recipient
from edge.agent.way import Step
from edge.client.errors import StoreFull
from edge.client.store_clock import StoreClock
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x57415952  # "WAYR"
PART: Final = "relay"
FILE: Final = "relay"
"""In the store's directory: mails that wait for the server."""
_EVENTS: Final = {
    decisions.DELIVERED: way.RELAYED,
    decisions.REFUSED: way.REFUSED,
    decisions.EXPIRED: way.EXPIRED,
    decisions.HELD: way.HELD,
    decisions.WAITING: way.DEFERRED,
}


class Job(msgspec.Struct, frozen=True):
    """A mail and the states of its recipients; `expires_s` by the store's clock."""

    mail: Mail
    recipients: list[Recipient]
    expires_s: float
    attempts: int

    def in_state(self, *states: str) -> list[Recipient]:
        return [one for one in self.recipients if one.state in states]

    def unreported(self) -> list[Recipient]:
        """Those who do not get the mail, without the sender knowing."""
        return [one for one in self.in_state(decisions.REFUSED, decisions.EXPIRED) if not one.is_reported]


class RelayStore:
    """`messages`, `total_bytes`, `remembered`: the limits. `wall_s`, `running_s`, `down_most_s`: see
    :mod:`edge.client.store_clock`. `file` has the log, too. Used from one thread. Raises StoreError."""

    def __init__(
        self,
        path: Path,
        *,
        messages: int,
        total_bytes: int,
        remembered: int,
        log_entries: int,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        down_most_s: float,
    ) -> None:
        self._messages, self._total_bytes, self._remembered = messages, total_bytes, remembered
        self._wall_s, self._running_s = wall_s, running_s
        self.file = AgentFile(path, _APPLICATION_ID, _SQL["schema"], log_entries)
        with self.file.transaction() as db:
            clock_s, clock_wall_s = db.execute(_SQL["clock"]).fetchone() or (0.0, 0.0)
        self._clock = StoreClock(clock_s, clock_wall_s, wall_s(), running_s(), down_most_s)

    @property
    def now_s(self) -> float:
        """The store's clock."""
        return self._clock.at(self._running_s())

    def close(self) -> None:
        self.file.close()

    # -- changes -------------------------------------------------------------------------------------------------------

    def add(self, mail: Mail, lifetime_s: float) -> bool:
        """Takes a mail; False if it is a repetition. Raises StoreFull."""
        with self.file.transaction() as db:
            if db.execute(_SQL["is_known"], (mail.id,)).fetchone()[0]:
                self._step(db, mail.id, way.REPEATED)
                self._count(db, "repeated", 1)
                return False
            messages, size = db.execute(_SQL["totals"]).fetchone()
            if messages >= self._messages or size + len(mail.content) > self._total_bytes:
                raise StoreFull(
                    f"the relay's store is full: {messages:,} mails with {size:,} bytes wait for the server"
                )
            now_s = self.now_s
            row = (mail.id, mail.sender, mail.smtputf8, now_s + lifetime_s, now_s, len(mail.content), mail.content)
            db.execute(_SQL["add"], row)
            db.executemany(_SQL["add_recipient"], [(mail.id, address) for address in dict.fromkeys(mail.recipients)])
            self._step(
                db,
                mail.id,
                way.RECEIVED,
                f"for {way.counted(len(mail.recipients), 'recipient')}, {len(mail.content)} bytes",
            )
            self._save_clock(db)
        return True

    def sending(self, identifier: str, addresses: Sequence[str]) -> None:
        """The content is about to be sent to the server for these recipients: durable before its final dot."""
        with self.file.transaction() as db:
            db.executemany(_SQL["set_sending"], [(identifier, address) for address in addresses])
            self._step(db, identifier, way.SENDING, ", ".join(addresses))

    def changed(self, identifier: str, recipients: Sequence[Recipient], next_s: float, attempts: int) -> None:
        """Recipients in new states. Removes the mail if nothing is left to do."""
        with self.file.transaction() as db:
            for one in recipients:
                before = self._recipient(db, identifier, one.address)
                db.execute(_SQL["set_state"], (one.state, one.doubtful, one.reply, identifier, one.address))
                if one.doubtful > before.doubtful:
                    self._step(db, identifier, way.DOUBTFUL, f"{one.address}: {one.reply}")
                    self._count(db, "doubtful", 1)
                self._step(db, identifier, _EVENTS[one.state], f"{one.address}: {one.reply}")
                if one.state in (decisions.DELIVERED, decisions.REFUSED, decisions.EXPIRED):
                    self._count(db, one.state, 1)
            db.execute(_SQL["set_next"], (next_s, attempts, identifier))
            self._finish(db, identifier)
            self._save_clock(db)

    def reported(self, identifier: str, addresses: Sequence[str], detail: str) -> None:
        """The sender has been told about these recipients, or cannot be. Removes the mail if nothing is left to do."""
        with self.file.transaction() as db:
            db.executemany(_SQL["set_reported"], [(identifier, address) for address in addresses])
            self._step(db, identifier, way.REPORTED, detail)
            self._finish(db, identifier)

    # -- questions -----------------------------------------------------------------------------------------------------

    def due(self) -> Job | None:
        """The mail whose turn it is."""
        return self._first("due", self.now_s)

    def over(self) -> Job | None:
        """A mail whose lifetime has ended with recipients that wait or are held."""
        return self._first("over", self.now_s)

    def unreported(self) -> Job | None:
        """A mail with recipients that are refused or expired, and a sender who does not know."""
        return self._first("unreported")

    def interrupted(self) -> list[Job]:
        """Mails that were being sent when the process ended. Call it once, first."""
        with self.file.transaction() as db:
            ids = [identifier for (identifier,) in db.execute(_SQL["interrupted"])]
            return [self._job(db, identifier) for identifier in ids]

    def next_s(self) -> tuple[float, float]:
        """When the next mail's turn is, and when the next lifetime ends, by the store's clock; infinite if never."""
        with self.file.transaction() as db:
            turn_s, end_s = db.execute(_SQL["next"]).fetchone()
        return math.inf if turn_s is None else float(turn_s), math.inf if end_s is None else float(end_s)

    def status(self) -> dict[str, int]:
        """Mails and bytes that wait, recipients by state, and counters."""
        with self.file.transaction() as db:
            messages, size = db.execute(_SQL["totals"]).fetchone()
            states = {f"recipients_{state}": count for state, count in db.execute(_SQL["states"])}
            counters = {f"{name}_in_all": value for name, value in db.execute(_SQL["counters"])}
        return {"messages": messages, "bytes": size, **states, **counters}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _first(self, query: str, *values: float) -> Job | None:
        with self.file.transaction() as db:
            row = db.execute(_SQL[query], values).fetchone()
            return None if row is None else self._job(db, row[0])

    def _job(self, db: Any, identifier: str) -> Job:
        found, sender, smtputf8, expires_s, attempts, content = db.execute(_SQL["mail"], (identifier,)).fetchone()
        recipients = [Recipient(*row) for row in db.execute(_SQL["recipients"], (identifier,))]
        addresses = tuple(one.address for one in recipients)
        return Job(Mail(found, sender, addresses, content, bool(smtputf8)), recipients, expires_s, attempts)

    def _recipient(self, db: Any, identifier: str, address: str) -> Recipient:
        return next(Recipient(*row) for row in db.execute(_SQL["recipients"], (identifier,)) if row[0] == address)

    def _finish(self, db: Any, identifier: str) -> None:
        if db.execute(_SQL["is_open"], (identifier,)).fetchone()[0]:
            return
        db.execute(_SQL["remove"], (identifier,))
        db.execute(_SQL["remove_recipients"], (identifier,))
        db.execute(_SQL["finish"], (identifier,))
        db.execute(_SQL["bound_finished"], (self._remembered,))

    def _step(self, db: Any, identifier: str, event: str, detail: str = "") -> None:
        self.file.log.add(db, [Step(identifier, self._wall_s(), PART, event, detail)])

    def _count(self, db: Any, name: str, value: int) -> None:
        db.execute(_SQL["count"], (name, value))

    def _save_clock(self, db: Any) -> None:
        db.execute(_SQL["set_clock"], (self.now_s, self._wall_s()))
