"""What one commit of a shard's spool changes, and how a commit that failed goes into the next one. Pure."""

from dataclasses import dataclass, field

from gateway.shard.messages import Message
from schemas.envelope import Instruction

NumberedMessage = tuple[int, Message, list[Instruction]]
FurtherInstruction = tuple[int, int, Message, Instruction]
Row = tuple[int, int, str, int, bool, tuple[int, ...], bool]
Part = tuple[int, int]


@dataclass
class SpoolBatch:
    """`messages`: (mid, message, instructions). `rows`: (row, mid, session, qos, retain, subscription ids, may have
    been sent); `session` is what names a session for good. `instructions`: (number, mid, message, instruction) are
    further ones for spooled messages; `number` is a fresh message number. `forgotten` are message numbers of both
    kinds. `keyed`: by message id its fingerprint and time (ms), None to forget it (:mod:`gateway.shard.keyed`).
    `bundles`: by key what was taken of a source, None to forget it (:mod:`gateway.shard.taken_bundles`).
    `sources`: by key the state of a source of redundant feeds (:mod:`gateway.shard.feed_states`), None if only a void
    record had one (:mod:`gateway.cluster.fencing`).

    `finished_clients`: by (position on egress[shard], part number) the clients that are newly finished with the message
    there; what earlier parts say is not written again. A part without clients is deleted. `ended_positions`: (position,
    number of parts): nobody needs these parts any more, also those that this batch brings.

    `positions` are those that have changed: the batch is worth a commit. What is written is the marker, which has all.

    They take effect in this order: what is added, then what is deleted, forgotten or ended.
    """

    messages: list[NumberedMessage] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    instructions: list[FurtherInstruction] = field(default_factory=list)
    deleted_rows: list[int] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    positions: dict[str, bytes] = field(default_factory=dict)
    keyed: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)
    bundles: dict[bytes, bytes | None] = field(default_factory=dict)
    sources: dict[bytes, bytes | None] = field(default_factory=dict)
    finished_clients: dict[Part, list[str]] = field(default_factory=dict)
    ended_positions: list[tuple[int, int]] = field(default_factory=list)

    def is_empty(self) -> bool:
        return not any(vars(self).values())

    @property
    def size(self) -> int:
        """Bytes of messages that wait for the commit."""
        return sum(message.size for _, message, _ in self.messages)

    def parts(self) -> dict[Part, list[str]]:
        """`finished_clients` after `ended_positions`: each part that this batch writes, those without clients to be
        deleted."""
        ended = {(position, part): list[str]() for position, parts in self.ended_positions for part in range(parts)}
        return self.finished_clients | ended

    def then(self, later: "SpoolBatch") -> "SpoolBatch":
        """One batch for both, of which this one was not committed. It leaves the spool as the two one after the other
        would: numbers are never used twice, and a row or message is always added before anything else names it.

        Records of this one may be in the changelog already. Therefore whatever it was to write is written again, or is
        deleted: a part that `later` ends stays in the result, without clients. For the same reason `ended_positions` is
        empty there: a part that `later` adds to a position that had ended is kept.

        Positions are left out: they say what was durable when they were taken, and must be taken again.
        """
        return SpoolBatch(
            messages=[*self.messages, *later.messages],
            rows=[*self.rows, *later.rows],
            instructions=[*self.instructions, *later.instructions],
            deleted_rows=[*self.deleted_rows, *later.deleted_rows],
            forgotten=[*self.forgotten, *later.forgotten],
            keyed=self.keyed | later.keyed,
            bundles=self.bundles | later.bundles,
            sources=self.sources | later.sources,
            finished_clients=self.parts() | later.parts(),
        )

    def take_done(self) -> tuple[list[tuple[Message, list[Instruction], list[int]]], set[int]]:
        """Takes out what has come and gone without ever being committed, so that a batch that waits does not grow with
        payloads: returns the messages whose recipients are all done, as (message, instructions, numbers), and the rows.

        The records of an attempt that failed may be in the changelog, and the next marker would commit them. Therefore
        the rows stay in `deleted_rows`, and the caller puts the numbers into `forgotten` once it has relinquished the
        instructions.
        """
        gone = {row[0] for row in self.rows}.intersection(self.deleted_rows)
        if not gone:
            return [], gone
        self.rows = [row for row in self.rows if row[0] not in gone]
        waiting = {row[1] for row in self.rows}
        done = {
            mid: (message, [*instructions], [mid]) for mid, message, instructions in self.messages if mid not in waiting
        }
        for number, mid, _, instruction in self.instructions:
            if mid in done:
                _, instructions, numbers = done[mid]
                instructions.append(instruction)
                numbers.append(number)
        self.messages = [message for message in self.messages if message[0] not in done]
        self.instructions = [further for further in self.instructions if further[1] not in done]
        return [*done.values()], gone
