"""Recognising copies in constant memory: the anti-replay window of RFC 4303, section 3.4.3.

Two routers write every instruction, so a shard sees most of them twice. A shard gets at most one instruction a message
and scope, hence the message's offset on its ingress partition identifies it, and one window over these offsets tells
first copies from later ones.
"""

from typing import Literal, TypeAlias

from schemas.envelope import EVERYONE, ROUTED

WINDOW_SIZE = 4096
SCOPES = (ROUTED, EVERYONE)

Copy: TypeAlias = Literal["first", "repetition", "of the other scope"]
"""What an instruction for a message is."""
_MASK = (1 << WINDOW_SIZE) - 1


class AntiReplayWindow:
    """Which offsets were seen, for the last WINDOW_SIZE offsets below the highest; older ones count as seen.

    That is safe: each router emits the messages of a partition in order, so the first copy of an offset never comes
    after the first copy of a much higher one.
    """

    __slots__ = ("bits", "top")

    def __init__(self, top: int = -1, bits: int = 0) -> None:
        self.top = top
        self.bits = bits

    def accept(self, offset: int) -> bool:
        """True the first time `offset` is shown, False for a copy."""
        ahead = offset - self.top
        if ahead > 0:
            self.bits = (self.bits << ahead | 1) & _MASK if ahead < WINDOW_SIZE else 1
            self.top = offset
            return True
        if -ahead >= WINDOW_SIZE or self.bits >> -ahead & 1:
            return False
        self.bits |= 1 << -ahead
        return True

    def seen(self, offset: int) -> bool:
        """Whether `offset` was shown before."""
        behind = self.top - offset
        return behind >= 0 and (behind >= WINDOW_SIZE or bool(self.bits >> behind & 1))


class CopyWindows:
    """The windows of a shard, one per partition of `ingress` and scope."""

    def __init__(self) -> None:
        self._windows: dict[int, tuple[AntiReplayWindow, AntiReplayWindow]] = {}

    def accept(self, scope: str, partition: int, offset: int) -> Copy:
        """What an instruction for this message is; afterwards it is seen."""
        found = self._windows.get(partition)
        if found is None:
            found = self._windows[partition] = (AntiReplayWindow(), AntiReplayWindow())
        own, other = found if scope == ROUTED else found[::-1]
        if not own.accept(offset):
            return "repetition"
        return "of the other scope" if other.seen(offset) else "first"

    def seen(self, scope: str, partition: int, offset: int) -> bool:
        """Whether an instruction for this message would be a repetition."""
        found = self._windows.get(partition)
        return found is not None and found[scope != ROUTED].seen(offset)

    def top(self, partition: int) -> int:
        """The highest offset seen, -1 if none was."""
        return max((window.top for window in self._windows.get(partition, ())), default=-1)

    def save(self) -> list[tuple[str, int, int, bytes]]:
        """Scope, partition, highest offset and bits of each window."""
        return [
            (scope, partition, window.top, window.bits.to_bytes(WINDOW_SIZE // 8))
            for partition, windows in self._windows.items()
            for scope, window in zip(SCOPES, windows, strict=True)
        ]

    def restore(self, saved: list[tuple[str, int, int, bytes]]) -> None:
        for scope, partition, top, bits in saved:
            windows = self._windows.setdefault(partition, (AntiReplayWindow(), AntiReplayWindow()))
            window = windows[SCOPES.index(scope)]
            window.top, window.bits = top, int.from_bytes(bits)
