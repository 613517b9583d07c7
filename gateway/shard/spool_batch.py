"""What one commit of the spool changes, and how a commit that failed goes into the next one. Pure."""

from dataclasses import dataclass, field

from gateway.shard.messages import Message
from schemas.envelope import Instruction

Row = tuple[int, int, str, int, bool, tuple[int, ...], bool]


@dataclass
class SpoolBatch:
    """`messages`: (mid, shard, message, instructions); `rows`: (row, mid, session, qos, retain, subscription ids, may
    have been sent); `instructions`: (mid, mid to use if that one is finished, shard, message, instruction) are further
    ones for messages in the spool. `session` is what names a session for good. `keyed`: by message id its fingerprint
    and time, None to forget it (:mod:`gateway.shard.keyed`).

    They take effect in this order: messages, rows, instructions, what is deleted, what is forgotten, positions.
    """

    messages: list[tuple[int, int, Message, list[Instruction]]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    instructions: list[tuple[int, int, int, Message, Instruction]] = field(default_factory=list)
    deleted_rows: list[int] = field(default_factory=list)
    deleted_sessions: list[str] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    positions: dict[str, bytes] = field(default_factory=dict)
    dropped_positions: list[str] = field(default_factory=list)
    keyed: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not any(vars(self).values())

    @property
    def size(self) -> int:
        """Payload bytes that wait for the commit."""
        return sum(len(message.payload) for _, _, message, _ in self.messages)

    def then(self, later: "SpoolBatch") -> "SpoolBatch":
        """One batch for both, of which this one was not committed. It leaves the spool as the two one after the other
        would: numbers are never used twice, and a row or message is always added before anything else names it.

        Positions are left out: they say what was durable when they were taken, and must be taken again.
        """
        return SpoolBatch(
            messages=[*self.messages, *later.messages],
            rows=[*self.rows, *later.rows],
            instructions=[*self.instructions, *later.instructions],
            deleted_rows=[*self.deleted_rows, *later.deleted_rows],
            deleted_sessions=[*self.deleted_sessions, *later.deleted_sessions],
            forgotten=[*self.forgotten, *later.forgotten],
            dropped_positions=[*self.dropped_positions, *later.dropped_positions],
            keyed=self.keyed | later.keyed,
        )

    def take_done(self) -> tuple[list[tuple[int, Message, list[Instruction]]], set[int]]:
        """Takes out what has come and gone without ever being committed, so that a batch that waits does not grow with
        it: returns the messages (shard, message, instructions) whose recipients are all done, and the rows."""
        gone = {row[0] for row in self.rows}.intersection(self.deleted_rows)
        if not gone:
            return [], gone
        self.deleted_rows = [row for row in self.deleted_rows if row not in gone]
        self.rows = [row for row in self.rows if row[0] not in gone]
        waiting = {row[1] for row in self.rows}
        further: dict[int, list[Instruction]] = {}
        done = {mid for mid, *_ in self.messages if mid not in waiting}
        for mid, _, _, _, instruction in self.instructions:
            if mid in done:
                further.setdefault(mid, []).append(instruction)
        found = [(shard, m, [*own, *further.get(mid, ())]) for mid, shard, m, own in self.messages if mid in done]
        self.messages = [message for message in self.messages if message[0] not in done]
        self.instructions = [i for i in self.instructions if i[0] not in done]
        return found, gone
