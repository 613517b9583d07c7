"""One shard's state: the fold over `egress[shard]`, and what of it must be kept for a restart."""

from collections import deque

import msgspec

from gateway.bus import Record
from gateway.home.messages import Held
from gateway.home.session import Session, SessionSubscription
from gateway.home.trie import SubscriptionTrie
from gateway.home.window import AntiReplayWindow

_BYTES_PER_WINDOW = 512
_SPOOLED_PLACES = 100_000


class ShardPosition(msgspec.Struct):
    """Where a shard's fold starts again: records of `egress[shard]` from `restart` on are read; of those before
    `position` only the `unfinished` ones count (offset → clients that are finished already), of which `copies` are
    further instructions for the same messages; `windows` are as of `position`."""

    restart: int
    position: int
    windows: list[tuple[str, int, int, bytes]]
    unfinished: dict[int, list[str]]
    copies: list[int] = []


class Shard:
    """Sessions, subscriptions, copies seen, and live messages: of `egress` by position, own copies by number.

    `parked` are records that must wait until the instant reader has passed their messages; `replay_to` is where
    `egress` ended when the home started, so that no earlier life of the home has seen more; `spooled` finds recent
    messages in the spool by their place on `ingress`.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sessions: dict[str, Session] = {}
        self.trie: SubscriptionTrie[SessionSubscription] = SubscriptionTrie()
        self.live: dict[int, Held] = {}
        self.own: dict[int, Held] = {}
        self.offered = 0
        self.spooled: dict[tuple[int, int], int] = {}
        self.parked: deque[Record] = deque()
        self.position = 0
        self.recovered_to = 0
        self.replay_to = 0
        self.unfinished: dict[int, list[str]] = {}
        self.copies: set[int] = set()
        self._windows: dict[tuple[str, int], AntiReplayWindow] = {}

    def window(self, scope: str, partition: int) -> AntiReplayWindow:
        """The window over the offsets of one ingress partition, for decisions of one scope."""
        window = self._windows.get((scope, partition))
        if window is None:
            window = self._windows[scope, partition] = AntiReplayWindow()
        return window

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
    def folded_to(self) -> int:
        """Up to where records of `egress` are applied; during a replay that is where the last life had come."""
        return max(self.position, self.recovered_to)

    @property
    def restart(self) -> int:
        """The lowest offset that a restart must read again."""
        lowest = next(iter(self.live), self.folded_to)
        return min(lowest, next(iter(self.unfinished), lowest))

    def snapshot(self) -> bytes:
        windows = [
            (scope, partition, w.top, w.bits.to_bytes(_BYTES_PER_WINDOW))
            for (scope, partition), w in self._windows.items()
        ]
        unfinished = {offset: held.finished_clients() for offset, held in self.live.items()} | self.unfinished
        copies = self.copies.union(*(held.copies for held in self.live.values()))
        unfinished |= {offset: [] for offset in copies}
        position = ShardPosition(self.restart, self.folded_to, windows, unfinished, sorted(copies))
        return msgspec.msgpack.encode(position)

    def restore(self, raw: bytes) -> int:
        """Takes up a snapshot; returns the offset to read from."""
        saved = msgspec.msgpack.decode(raw, type=ShardPosition)
        self.position = saved.restart
        self.recovered_to = saved.position
        self.unfinished = dict(sorted(saved.unfinished.items()))
        self.copies = set(saved.copies)
        for scope, partition, top, bits in saved.windows:
            self._windows[scope, partition] = AntiReplayWindow(top, int.from_bytes(bits))
        return saved.restart
