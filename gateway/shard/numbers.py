"""Numbers that order what a process does, also against earlier processes, whatever the clock says (R12). Pure."""


class ProcessNumbers:
    """`boot`, µs since the epoch, is when this process began, and greater than any number that an earlier process has
    given in one of its shards, as far as a checkpoint has noted it. Each number belongs to something in a shard. What
    an earlier process has given since its last checkpoint, and written to the session log, is not given again."""

    def __init__(self) -> None:
        self.boot = 0
        self._above = 0
        self._last: dict[str, int] = {}
        self._given: dict[int, int] = {}

    def begin(self, now: float, earlier: int) -> None:
        """The process starts at `now`, seconds since the epoch, or a shard in it; `earlier` is the highest number that
        earlier processes have given in what starts, their own among them."""
        if not self.boot:
            self.boot = max(int(now * 1e6), earlier + 1)
        self._above = max(self._above, earlier)

    def number_above(self, number: int) -> None:
        """Numbers that are given from now on are higher; a session log knows of it."""
        self._above = max(self._above, number)

    def connection(self, shard: int, now: float) -> int:
        """For a connection: the time, µs since the epoch, but greater than all before it: a clock that is set back must
        not make an earlier connection of a client count for more."""
        return self._next("connection", shard, now)

    def session(self, shard: int, now: float) -> int:
        """For a session: a number of the same kind, of another series."""
        return self._next("session", shard, now)

    def offer(self, shard: int, now: float) -> int:
        """For sending a retained message on SUBSCRIBE: likewise."""
        return self._next("offer", shard, now)

    def highest(self, shard: int) -> int:
        """No higher number was given in a shard so far: what a later process needs for `begin`."""
        return max(self._given.get(shard, 0), self.boot, self._above)

    def _next(self, series: str, shard: int, now: float) -> int:
        number = max(int(now * 1e6), self.boot, self._above + 1, self._last.get(series, 0) + 1)
        self._last[series], self._given[shard] = number, max(number, self.highest(shard))
        return number


_RESERVED = 1_000_000


class ReservedNumbers:
    """Numbers that no life of a shard gives twice, whatever crashes: only such are given as a durable limit covers."""

    def __init__(self) -> None:
        self._last = 0
        self._limit = 0

    def begin(self, limit: int) -> None:
        """The limit that an earlier life has written: it may have given all numbers up to it."""
        self._last = self._limit = limit

    @property
    def next_limit(self) -> int:
        """To be written with the next commit; `reserved` follows."""
        return self._last + _RESERVED if self._limit - self._last < _RESERVED // 2 else self._limit

    def reserved(self, limit: int) -> None:
        """The limit is durable."""
        self._limit = limit

    def take(self) -> int | None:
        """The next number, counted from 1; None if it is not covered."""
        if self._last >= self._limit:
            return None
        self._last += 1
        return self._last
