"""Numbers that order what a process does, also against earlier processes, whatever the clock says (R12). Pure."""


class ProcessNumbers:
    """`boot`, µs since the epoch, is when this process began, and greater than the number of any earlier process that
    had one of its shards."""

    def __init__(self) -> None:
        self.boot = 0
        self._last_connection = 0
        self._last_offer = 0

    def begin(self, now: float, earlier_boot: int) -> None:
        """The process starts at `now`, seconds since the epoch; `earlier_boot` is the highest earlier number."""
        self.boot = max(int(now * 1e6), earlier_boot + 1)

    def connection(self, now: float) -> int:
        """For a connection: the time, µs since the epoch, but greater than all before it: a clock that is set back must
        not make an earlier connection of a client count for more."""
        self._last_connection = max(int(now * 1e6), self.boot, self._last_connection + 1)
        return self._last_connection

    def offer(self, now: float) -> int:
        """For sending a retained message on SUBSCRIBE: a number of the same kind, of another series."""
        self._last_offer = max(int(now * 1e6), self.boot, self._last_offer + 1)
        return self._last_offer
