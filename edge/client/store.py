"""What a store keeps on disk for a client: the outbox, and the client's half of the MQTT session (M2, G8).

All changes of one moment are one :class:`Batch`. :meth:`Store.commit` makes a batch durable as a whole or not at all.
The caller holds back the bytes that depend on a batch until it is durable (:mod:`mqtt.client_session` says why). So a
client that is killed at any moment finds one of these for each message:

* waiting: accepted, never sent; `packet_id` is 0
* in flight: it may have been sent, under `packet_id`; it is sent again under the same packet id, with DUP
* released (QoS 2): PUBREC has arrived; only PUBREL is sent again
* absent: acknowledged, refused or expired

When another bearer takes the store over, the exchanges of QoS 2 messages that MQTT has sent stay *open*: the gateway
may hold their packet ids as received, whatever becomes of the messages. No other message gets such a packet id before
MQTT has sent PUBREL for it and has PUBCOMP.

A row's `sequence` is never used twice. Two implementations pass the same tests: :mod:`edge.client.sqlite_store` and
:mod:`edge.client.memory_store`. A store is used from one thread.
"""

import secrets
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from mqtt.packets import Properties

EXPIRED_MAX: Final = 1_000  # rows that `Store.expired` returns at a time


class StoredMessage(msgspec.Struct, gc=False):
    """One message of the outbox. `expires_s` is by the store's clock (:mod:`edge.client.store_clock`); `size` in bytes
    counts towards the limits. `packet_id` is 0 until it may have been sent. `incarnation` and `sequence` together name
    the message, so that whoever gets it twice can tell."""

    sequence: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None
    expires_s: float
    size: int
    packet_id: int = 0
    incarnation: int = 0


class WaitingRow(msgspec.Struct, gc=False):
    """A message that waits, without its payload; `size` in bytes."""

    sequence: int
    topic: str
    qos: int
    size: int


class SessionRow(msgspec.Struct, gc=False):
    """The rest of the session. `clock_s` and `wall_s` are the store's clock and the wall clock at the last commit.
    `is_taken_over`: another bearer has had the store since MQTT was connected last, so it may have given packet ids."""

    client_id: str
    is_established: bool = False
    last_packet_id: int = 0
    last_sequence: int = 0
    clock_s: float = 0.0
    wall_s: float = 0.0
    is_taken_over: bool = False


@dataclass
class Batch:
    """Changes that become durable together, applied in the order of the fields.

    `added`: new messages, in order of sequence. `assigned`: packet ids by sequence. `released`: reason code of PUBREC
    by sequence, in the order of PUBREC. `removed`: sequences. `inbound`: packet ids of QoS 2 messages that the
    application has accepted (True), or whose exchange has ended (False). `open_ids`: packet ids of open exchanges
    (True), or of those that have ended (False). `session` replaces the session's row.
    """

    added: dict[int, StoredMessage] = field(default_factory=dict)
    assigned: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    inbound: dict[int, bool] = field(default_factory=dict)
    open_ids: dict[int, bool] = field(default_factory=dict)
    session: SessionRow | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes; the session's row alone is no change."""
        return not (self.added or self.assigned or self.released or self.removed or self.inbound or self.open_ids)


def without_added(batch: Batch, later: Batch) -> Batch:
    """Both batches as one, without the messages that `batch` adds and all that became of them."""
    added = batch.added.keys()
    return Batch(
        later.added,
        {n: packet_id for n, packet_id in (batch.assigned | later.assigned).items() if n not in added},
        {n: reason for n, reason in (batch.released | later.released).items() if n not in added},
        [n for n in batch.removed + later.removed if n not in added],
        batch.inbound | later.inbound,
        batch.open_ids | later.open_ids,
    )


class Recovered(msgspec.Struct):
    """What a store holds when it is opened. `in_flight` by sequence; `released`: (sequence, reason code) in the order
    of PUBREC; `accepted`: packet ids of inbound QoS 2 messages; `waiting`: how many messages wait; `messages` and
    `size`: how many there are in all, and their bytes. `incarnation`: that of the messages which are accepted from now
    on. Each opening of a store has another one: a file that was restored from a backup gives the sequences after the
    backup a second time. `open_ids`: packet ids of open exchanges, in the order in which they were recorded; some may
    be those of messages in flight."""

    session: SessionRow
    in_flight: list[StoredMessage]
    released: list[tuple[int, int]]
    accepted: list[int]
    waiting: int
    messages: int
    size: int
    incarnation: int
    open_ids: list[int] = []


def new_incarnation() -> int:
    """A number for a store, or for one opening of it, 63 random bits; no two of a client have the same."""
    return secrets.randbits(63)


class Store(Protocol):
    """A store that is open. Errors are those of :class:`edge.client.errors.StoreError`."""

    def recover(self) -> Recovered:
        """What the store holds; call it once, first."""

    def commit(self, batch: Batch) -> None:
        """Makes all of `batch` durable. Raises DiskFull, StoreFailed or StoreDamaged: then nothing of it is."""

    def waiting(self, after: int, messages_max: int, size_max: int) -> list[StoredMessage]:
        """Messages that wait, in order, with a sequence above `after`; the first one whatever its size."""

    def expired(self, now_s: float) -> list[WaitingRow]:
        """Messages that wait although they expire at `now_s` or before, 1,000 at most, in order."""

    def next_expiry(self) -> float | None:
        """When the next waiting message expires."""

    def close(self) -> None:
        """Releases the file."""
