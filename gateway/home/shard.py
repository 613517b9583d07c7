"""One shard's state: the fold over `egress[shard]`, and what of it must be kept for a restart."""

from collections import deque

import msgspec

from gateway.bus import Record
from gateway.home.messages import Held
from gateway.home.session import Session, SessionSubscription
from gateway.home.trie import SubscriptionTrie
from gateway.home.window import AntiReplayWindow

_BYTES_PER_WINDOW = 512


class ShardPosition(msgspec.Struct):
    """Where a shard's fold starts again: records of `egress[shard]` from `restart` on are read; of those before `position`
    only the `unfinished` ones count (offset → clients that are finished already); `windows` are as of `position`."""

    restart: int
    position: int
    windows: list[tuple[str, int, int, bytes]]
    unfinished: dict[int, list[str]]


class Shard:
    """Sessions, subscriptions, copies seen, and live messages by position. `parked` are records that must wait until the
    instant reader has passed their messages."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sessions: dict[str, Session] = {}
        self.trie: SubscriptionTrie[SessionSubscription] = SubscriptionTrie()
        self.live: dict[int, Held] = {}
        self.parked: deque[Record] = deque()
        self.position = 0
        self.recovered_to = 0
        self.committed_restart = 0
        self.unfinished: dict[int, list[str]] = {}
        self._windows: dict[tuple[str, int], AntiReplayWindow] = {}

    def window(self, scope: str, partition: int) -> AntiReplayWindow:
        """The window over the offsets of one ingress partition, for decisions of one scope."""
        window = self._windows.get((scope, partition))
        if window is None:
            window = self._windows[scope, partition] = AntiReplayWindow()
        return window

    @property
    def restart(self) -> int:
        """The lowest offset that a restart must read again."""
        lowest = next(iter(self.live), self.position)
        return min(lowest, next(iter(self.unfinished), lowest))

    def snapshot(self) -> bytes:
        windows = [
            (scope, partition, w.top, w.bits.to_bytes(_BYTES_PER_WINDOW))
            for (scope, partition), w in self._windows.items()
        ]
        unfinished = {offset: held.finished_clients() for offset, held in self.live.items()} | self.unfinished
        return msgspec.msgpack.encode(ShardPosition(self.restart, self.position, windows, unfinished))

    def restore(self, raw: bytes) -> int:
        """Takes up a snapshot; returns the offset to read from."""
        saved = msgspec.msgpack.decode(raw, type=ShardPosition)
        self.position = saved.restart
        self.recovered_to = saved.position
        self.committed_restart = saved.restart
        self.unfinished = dict(sorted(saved.unfinished.items()))
        for scope, partition, top, bits in saved.windows:
            self._windows[scope, partition] = AntiReplayWindow(top, int.from_bytes(bits))
        return saved.restart
