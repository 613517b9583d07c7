"""One shard's state: the fold over `egress[shard]`, and what of it must be kept for a restart."""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from gateway.record import Record
from gateway.shard.finished_clients import FinishedClients
from gateway.shard.messages import Held
from gateway.shard.numbers import ReservedNumbers
from gateway.shard.session import Session
from gateway.shard.subscription import SessionSubscription
from gateway.shard.trie import SubscriptionTrie
from gateway.shard.window import AntiReplayWindow
from schemas.envelope import EVERYONE, ROUTED

_BYTES_PER_WINDOW = 512
_SPOOLED_PLACES = 100_000

SCOPES = (ROUTED, EVERYONE)


class ShardPosition(msgspec.Struct):
    """Where a shard's fold starts again: records of `egress[shard]` from `restart` on are read; of those before
    `position` only the `unfinished` ones count, of which `copies` are further instructions for the same messages
    (earlier versions also said which clients are finished, by offset). Some behind `position` may be applied too: they
    are in `windows`, and in `unfinished` if they are. `expected` and `left` (partition, offset, clients): see
    :class:`Shard`."""

    restart: int
    position: int
    windows: list[tuple[str, int, int, bytes]]
    unfinished: list[int] | dict[int, list[str]]
    copies: list[int] = []
    expected: dict[int, int] = {}
    left: list[tuple[int, int, Sequence[str]]] = []


class Shard:
    """Sessions, subscriptions, copies seen, and live messages: of `egress` by position, own copies by number.

    `position` is behind the last record of `egress` received. `parked` are those that must wait until the instant
    reader has passed their messages, with these messages' offsets, by partition of `ingress`: a partition's are in
    order, and do not wait for others, so that nobody can wait in a circle. `expected` is, by partition of `ingress`,
    the last message that the reader has passed and an instruction is to bring. `left` are, by place on `ingress` until
    the instruction is there, clients whose newer subscription got no own copy because an older one was to bring the
    message: it has to come though the older one ends meanwhile. `replay_to` is where `egress` ended when the home
    started, so that no earlier life of the home has seen more; `spooled` finds recent messages in the spool by their
    place on `ingress`.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sessions: dict[str, Session] = {}
        self.trie: SubscriptionTrie[SessionSubscription] = SubscriptionTrie()
        self.live: dict[int, Held] = {}
        self.own: dict[int, Held] = {}
        self.offered = 0
        self.spooled: dict[tuple[int, int], int] = {}
        self.parked: dict[int, deque[tuple[int, Record]]] = {}
        self.parked_records = 0
        self.parked_bytes = 0
        self.expected: dict[int, int] = {}
        self.left: dict[tuple[int, int], Sequence[str]] = {}
        self.position = 0
        self.recovered_to = 0
        self.replay_to = 0
        self.unfinished: dict[int, None] = {}
        self.finished = FinishedClients()
        self.copies: set[int] = set()
        self.assignment_numbers = ReservedNumbers()
        self._windows: dict[int, tuple[AntiReplayWindow, AntiReplayWindow]] = {}
        self._heard: dict[int, int] = {}
        self._replayed_to = 0
        self._spool_through = 0

    def spool_through(self, number: int) -> None:
        """Messages offered up to this number go to the spool with the next checkpoint, however short they wait."""
        self._spool_through = max(self._spool_through, number)

    def is_for_spool(self, held: Held) -> bool:
        """Whether the next checkpoint moves a message to the spool, though it may not have waited for long."""
        return held.number <= self._spool_through

    def windows(self, scope: str, partition: int) -> tuple[AntiReplayWindow, AntiReplayWindow]:
        """The windows over the offsets of one ingress partition: for decisions of `scope`, and of the other one."""
        found = self._windows.get(partition)
        if found is None:
            found = self._windows[partition] = (AntiReplayWindow(), AntiReplayWindow())
        return found if scope == ROUTED else found[::-1]

    def park(self, partition: int, offset: int, record: Record) -> None:
        """Keeps an instruction for the message at this place on `ingress` for later."""
        self.parked.setdefault(partition, deque()).append((offset, record))
        self.parked_records += 1
        self.parked_bytes += len(record.value() or b"")
        self.hear(partition, offset)

    def unpark(self, partition: int) -> Record:
        """The first instruction parked for a partition of `ingress`; it waits no more."""
        parked = self.parked[partition]
        _, record = parked.popleft()
        if not parked:
            del self.parked[partition]
        self.parked_records -= 1
        self.parked_bytes -= len(record.value() or b"")
        return record

    def hear(self, partition: int, offset: int) -> None:
        """An instruction for this message is there, though it is not in a window."""
        self._heard[partition] = max(self._heard.get(partition, -1), offset)

    def reached(self, partition: int) -> int:
        """The last message of a partition of `ingress` that an instruction has come for, -1 if none has. As routers
        emit a partition in order, none is to come for an earlier one but those that are here."""
        return max(self._heard.get(partition, -1), *(window.top for window in self._windows.get(partition, ())), -1)

    def expect(self, partition: int, offset: int) -> None:
        """The reader passes a message that an instruction is to bring."""
        if offset > self.reached(partition):
            self.expected[partition] = offset

    def is_ahead_of_routers(self, partition: int, offset: int) -> bool:
        """Whether an instruction is still to be applied, or to come, or to come again, for a message that the reader
        has passed before this one: it must not be overtaken (R8)."""
        if self.position < self._replayed_to:
            return True
        parked_here = self.parked.get(partition)
        if parked_here and parked_here[0][0] < offset:
            return True
        if any(parked[0][1].offset() < self._replayed_to for parked in self.parked.values()):
            return True
        return self.expected.get(partition, -1) > self.reached(partition)

    def hold(self, held: Held) -> None:
        """Takes up a message that waits for recipients."""
        self.offered += 1
        held.number = self.offered
        if held.position >= 0:
            self.live[held.position] = held
        else:
            self.own[held.number] = held

    def release(self, held: Held) -> None:
        """It waits no more, or in the spool."""
        if held.position >= 0:
            self.live.pop(held.position, None)
            self.finished.ended(held.position)
        else:
            self.own.pop(held.number, None)

    def note_spooled(self, held: Held, mid: int) -> None:
        if len(self.spooled) >= _SPOOLED_PLACES:
            del self.spooled[next(iter(self.spooled))]
        self.spooled[held.message.partition, held.message.offset] = mid

    def find_live(self, place: tuple[int, int]) -> Held | None:
        """The live message at `place` on `ingress`; most likely a late one."""
        for held in reversed(self.live.values()):
            if (held.message.partition, held.message.offset) == place:
                return held
        return None

    @property
    def received_to(self) -> int:
        """Up to where records of `egress` have come; during a replay that is where the last life was."""
        return max(self.position, self.recovered_to)

    @property
    def folded_to(self) -> int:
        """Up to where all records of `egress` are applied; during a replay that is where the last life had come."""
        waiting = (r.offset() for parked in self.parked.values() for _, r in parked if r.offset() >= self.recovered_to)
        return min(waiting, default=self.received_to)

    @property
    def restart(self) -> int:
        """The lowest offset that a restart must read again."""
        lowest = min(self.live, default=self.folded_to)
        return min(self.folded_to, lowest, next(iter(self.unfinished), lowest))

    def snapshot(self) -> bytes:
        windows = [
            (scope, partition, window.top, window.bits.to_bytes(_BYTES_PER_WINDOW))
            for partition, windows in self._windows.items()
            for scope, window in zip(SCOPES, windows, strict=True)
        ]
        copies = self.copies.union(*(held.copies for held in self.live.values()))
        unfinished = sorted({*self.live, *self.unfinished, *copies})
        expected = {p: offset for p, offset in self.expected.items() if offset > self.reached(p)}
        left: list[tuple[int, int, Sequence[str]]] = [(*place, clients) for place, clients in self.left.items()]
        left += [(h.message.partition, h.message.offset, h.left) for h in self.live.values() if h.left]
        position = ShardPosition(self.restart, self.folded_to, windows, unfinished, sorted(copies), expected, left)
        return msgspec.msgpack.encode(position)

    def restore(self, raw: bytes, finished: Mapping[int, list[str]], parts: Mapping[int, int]) -> int:
        """Takes up a snapshot, and who is finished with unfinished messages; returns the offset to read from."""
        saved = msgspec.msgpack.decode(raw, type=ShardPosition)
        self.position = saved.restart
        self.recovered_to = saved.position
        if isinstance(saved.unfinished, dict):
            finished = saved.unfinished
        self.unfinished = dict.fromkeys(sorted(saved.unfinished))
        self.finished.restore(finished, parts, lambda at: at in self.unfinished or at >= saved.position)
        self._replayed_to = max(saved.position, max(saved.unfinished, default=-1) + 1)
        self.expected = saved.expected
        self.left = {(partition, offset): clients for partition, offset, clients in saved.left}
        self.copies = set(saved.copies)
        for scope, partition, top, bits in saved.windows:
            window, _ = self.windows(scope, partition)
            window.top, window.bits = top, int.from_bytes(bits)
        return saved.restart
