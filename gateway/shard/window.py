"""Recognising copies in constant memory: the anti-replay window of RFC 4303, section 3.4.3.

Two routers write every instruction, so a shard sees most of them twice. A shard gets at most one instruction a message
and scope, hence the message's offset on its ingress partition identifies it, and one window over these offsets tells
first copies from later ones.
"""

WINDOW_SIZE = 4096
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
