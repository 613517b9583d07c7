"""Capacity that is set aside for bundles that are on their way, and who may bring one. Pure."""


class SetAside:
    """Several peers may bring the same bundle, so that one which sends it slowly, or never the last byte, cannot keep
    it from coming. Another one may begin when the latest began `patience_s` ago. Of those that have brought all of it
    one at a time is made durable. Times are seconds of the carrier's clock."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._sizes: dict[str, list[int]] = {}  # of each that brings it
        self._latest: dict[str, float] = {}
        self._storing: set[str] = set()
        self._count = self.bytes = 0

    def __len__(self) -> int:
        return self._count

    def is_busy(self, message_id: str, now: float) -> bool:
        """Whether it is on its way, and nobody else may begin."""
        began = self._latest.get(message_id)
        return began is not None and now - began < self._patience_s

    def begin(self, message_id: str, size: int, now: float) -> None:
        """Somebody begins to bring it."""
        self._sizes.setdefault(message_id, []).append(size)
        self._latest[message_id] = now
        self._count += 1
        self.bytes += size

    def end(self, message_id: str) -> None:
        """One of those that bring it has done so, or will not."""
        sizes = self._sizes.get(message_id)
        if sizes is None:
            return
        self.bytes -= sizes.pop()
        self._count -= 1
        if not sizes:
            del self._sizes[message_id], self._latest[message_id]

    def begin_storing(self, message_id: str) -> bool:
        """All of it has come, and is made durable now; False if that of another one is."""
        if message_id in self._storing:
            return False
        self._storing.add(message_id)
        return True

    def end_storing(self, message_id: str) -> None:
        """It is durable, or could not be made so. Ends its arrival, too."""
        self._storing.discard(message_id)
        self.end(message_id)
