"""Numbers that order what a process does, also against earlier processes, whatever the clock says (R12). Pure."""


class ProcessNumbers:
    """`boot`, µs since the epoch, is when this process began, and greater than the number of any earlier process that
    had one of its shards."""

    def __init__(self) -> None:
        self.boot = 0
        self._last: dict[str, int] = {}

    def begin(self, now: float, earlier_boot: int) -> None:
        """The process starts at `now`, seconds since the epoch; `earlier_boot` is the highest earlier number."""
        self.boot = max(int(now * 1e6), earlier_boot + 1)

    def connection(self, now: float) -> int:
        """For a connection: the time, µs since the epoch, but greater than all before it: a clock that is set back must
        not make an earlier connection of a client count for more."""
        return self._next("connection", now)

    def session(self, now: float) -> int:
        """For a session: a number of the same kind, of another series."""
        return self._next("session", now)

    def offer(self, now: float) -> int:
        """For sending a retained message on SUBSCRIBE: likewise."""
        return self._next("offer", now)

    def _next(self, series: str, now: float) -> int:
        number = self._last[series] = max(int(now * 1e6), self.boot, self._last.get(series, 0) + 1)
        return number
