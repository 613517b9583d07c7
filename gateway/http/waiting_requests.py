"""How many requests wait for replies, of each client and in all (R6)."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.http.identity import Caller
from gateway.http.problems import Problem


class WaitingRequests:
    """Counts the waiting requests of one gateway; at most `most`, and of each client `most_per_client`. Those beyond
    are counted in `counts`."""

    def __init__(self, most: int, most_per_client: int, counts: Counter[str]) -> None:
        self._most, self._most_per_client, self._counts = most, most_per_client, counts
        self._of_client = Counter[str]()
        self._in_all = 0

    def __len__(self) -> int:
        return self._in_all

    @contextmanager
    def one_more(self, caller: Caller) -> Iterator[None]:
        """Counts a request as long as the context is open. Raises Problem 429 or 503: nothing was done."""
        client = caller.client if caller.is_known else f"at {caller.peer.rpartition(':')[0]}"
        if self._of_client[client] >= self._most_per_client:
            self._counts["request_refused"] += 1
            raise Problem(
                429,
                "too_many_requests_of_client",
                f"{self._most_per_client} requests of this client wait for replies; nothing was sent, try again later",
            )
        if self._in_all >= self._most:
            self._counts["request_refused"] += 1
            raise Problem(
                503, "too_many_waiting_requests", "too many requests wait for replies; nothing was sent, try again"
            )
        self._of_client[client] += 1
        self._in_all += 1
        try:
            yield
        finally:
            self._in_all -= 1
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]
