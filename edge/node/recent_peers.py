"""Whom this agent has met lately: for these it takes along what waits at the platform (M15). In memory only."""

from collections import OrderedDict
from typing import Final

PEERS_MAX: Final = 500


class RecentPeers:
    """The names of the last peers, at most `most`."""

    def __init__(self, most: int = PEERS_MAX) -> None:
        self._most = most
        self._names: OrderedDict[str, None] = OrderedDict()

    def met(self, name: str) -> None:
        """A contact has begun."""
        self._names[name] = None
        self._names.move_to_end(name)
        if len(self._names) > self._most:
            self._names.popitem(last=False)

    @property
    def names(self) -> list[str]:
        """The last one first."""
        return list(reversed(self._names))
