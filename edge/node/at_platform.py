"""Envelopes of this agent that the platform has, and whose recipients may not have them yet; without I/O (M14).

A gateway's receipt ends a message here. Its recipient may meet this agent before it reaches the platform, so later
messages must say that this one may still come (`ended_below`, :mod:`bundles.bundle`): until the recipient's receipt
comes, or for as long as any message lives. Most receipts never come, since a recipient that gets a message from the
platform has no reason to tell its originator.

So little is kept: the newest `EXACT` messages, whose receipts are recognised; of older ones, for each recipient and
sixteenth of the longest lifetime, the lowest sequence, which counts until the last of them is over.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from bundles.receipt import Receipt, Role

EXACT: Final = 1_000
_PARTS: Final = 16
"""Of the longest lifetime: so at most 17 sequences of older messages are kept for a recipient."""


class AtPlatformRow(NamedTuple):
    """What is stored of one message, or of some: the lowest sequence, their recipient, and until when it counts, by the
    store's clock. `message_id`: of one; "" of some."""

    sequence: int
    recipient: str
    until_s: float
    message_id: str


Changes = dict[int, AtPlatformRow | None]
"""What is to be stored under each sequence; None: nothing."""


class AtPlatform:
    """`lifetime_s`: the longest that a message may have."""

    def __init__(self, lifetime_s: float, exact: int = EXACT) -> None:
        self._lifetime_s, self._exact_most = lifetime_s, exact
        self._exact: dict[str, AtPlatformRow] = {}  # by message, in the order in which they end
        self._older: dict[str, dict[float, int]] = {}  # by recipient: the lowest sequence, by when it ends
        self._sequences: dict[str, set[int]] = {}  # by recipient: of `_exact`

    def recover(self, rows: Iterable[AtPlatformRow]) -> None:
        """What was stored, in the order in which it ends."""
        for row in rows:
            if row.message_id:
                self._keep(row)
            else:
                self._older.setdefault(row.recipient, {})[row.until_s] = row.sequence

    def lowest(self, recipient: str | None) -> int | None:
        """The lowest sequence that the recipient may not have yet."""
        if recipient is None:
            return None
        older = self._older.get(recipient, {})
        return min((*self._sequences.get(recipient, ()), *older.values()), default=None)

    def begin(self, message_id: str, sequence: int, recipient: str, now_s: float) -> Changes:
        """The platform has this message now."""
        row = AtPlatformRow(sequence, recipient, now_s + self._lifetime_s, message_id)
        self._keep(row)
        changes: Changes = {sequence: row}
        if len(self._exact) > self._exact_most:
            changes |= self._join(self._forget(next(iter(self._exact))))
        return changes

    def is_ended_by(self, receipt: Receipt) -> bool:
        """Whether it is for a message that is kept here, and its signer may say that the recipient has it."""
        row = self._exact.get(receipt.message_id)
        return row is not None and (
            receipt.role is Role.EXIT_AGENT or (receipt.role is Role.RECIPIENT and receipt.signer == row.recipient)
        )

    def end(self, message_id: str) -> Changes:
        """Its recipient has it."""
        return {self._forget(message_id).sequence: None}

    def expire(self, now_s: float) -> Changes:
        """Forgets what has ended by its lifetime."""
        changes: Changes = {}
        while self._exact and (row := next(iter(self._exact.values()))).until_s <= now_s:
            self._forget(row.message_id)
            changes[row.sequence] = None
        for recipient, sequences in list(self._older.items()):
            for until_s in [one for one in sequences if one <= now_s]:
                changes[sequences.pop(until_s)] = None
            if not sequences:
                del self._older[recipient]
        return changes

    def _keep(self, row: AtPlatformRow) -> None:
        self._exact[row.message_id] = row
        self._sequences.setdefault(row.recipient, set()).add(row.sequence)

    def _forget(self, message_id: str) -> AtPlatformRow:
        row = self._exact.pop(message_id)
        sequences = self._sequences[row.recipient]
        sequences.remove(row.sequence)
        if not sequences:
            del self._sequences[row.recipient]
        return row

    def _join(self, row: AtPlatformRow) -> Changes:
        """With the others of its recipient that end at about the same time."""
        part_s = self._lifetime_s / _PARTS
        until_s = math.ceil(row.until_s / part_s) * part_s
        older = self._older.setdefault(row.recipient, {})
        lowest = older.get(until_s)
        if lowest is not None and lowest < row.sequence:
            return {row.sequence: None}
        older[until_s] = row.sequence
        changes: Changes = {row.sequence: AtPlatformRow(row.sequence, row.recipient, until_s, "")}
        return changes if lowest is None else {**changes, lowest: None}
