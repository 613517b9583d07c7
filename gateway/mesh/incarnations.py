"""From how many stores of an originator a gateway takes messages, so that shards can remember each of them (M14). Pure.

A shard never drops a bundle that has a receipt, and so has to remember every incarnation of an originator of which it
gets one (:mod:`gateway.shard.taken_bundles`). Incarnations are random numbers that originators choose, so without a
limit anybody who is enrolled could fill the memory. A gateway therefore counts them and says `later` beyond a limit,
before it gives a receipt. An incarnation of which nothing comes for `remembered_s` counts no more.

Each gateway counts what it takes itself, and when it starts what the shards that it has remember; so it knows most of
what it has taken before. A shard may get as many from each gateway.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable


class Incarnations:
    """At most `most` together, and `of_originator` of one originator. `known`: originator, incarnation and when it was
    used. Times are seconds since the epoch."""

    def __init__(
        self, most: int, of_originator: int, remembered_s: float, known: Iterable[tuple[str, int, float]] = ()
    ) -> None:
        self._most, self._of_originator, self._remembered_s = most, of_originator, remembered_s
        self._used: OrderedDict[tuple[str, int], float] = OrderedDict()  # the one unused for longest first
        self._counts: Counter[str] = Counter()
        latest: dict[tuple[str, int], float] = {}
        for originator, incarnation, used_s in known:
            latest[originator, incarnation] = max(used_s, latest.get((originator, incarnation), used_s))
        for (originator, incarnation), used_s in sorted(latest.items(), key=lambda item: item[1]):
            self._used[originator, incarnation] = used_s
            self._counts[originator] += 1

    def __len__(self) -> int:
        return len(self._used)

    def refusal(self, originator: str, incarnation: int, now_s: float) -> str:
        """Why nothing is taken of the incarnation now; "" if it is counted and messages of it are taken."""
        key = originator, incarnation
        if key not in self._used:
            self._expire(now_s)
            if self._counts.get(originator, 0) >= self._of_originator:
                return (
                    f"{originator} has sent from {self._of_originator} stores within {self._remembered_s / 86_400:g} "
                    "days, as many as gateway.mesh.originator_incarnations allows"
                )
            if len(self._used) >= self._most:
                return f"the gateway knows {self._most} stores of originators, as many as gateway.mesh.sources allows"
            self._counts[originator] += 1
        self._used[key] = now_s
        self._used.move_to_end(key)
        return ""

    def _expire(self, now_s: float) -> None:
        while self._used:
            (originator, incarnation), used_s = next(iter(self._used.items()))
            if used_s + self._remembered_s > now_s:
                return
            del self._used[originator, incarnation]
            self._counts[originator] -= 1
            if not self._counts[originator]:
                del self._counts[originator]
