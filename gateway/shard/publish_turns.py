"""What a client publishes goes to `ingress` in its order, though some of it waits for its retained copy first (R8).
Pure."""

from collections import deque
from collections.abc import Callable

Action = Callable[[], None]


def _nothing() -> None:
    pass


class Turn:
    """The place of a message that waits. Only :class:`PublishTurns` assigns these."""

    __slots__ = ("action", "is_due")

    def __init__(self, action: Action = _nothing, *, is_due: bool = False) -> None:
        self.action, self.is_due = action, is_due


class PublishTurns:
    """Of all clients of a shard, by client; over their connections. Most of them wait for nothing."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Turn]] = {}

    def waits(self, client: str) -> bool:
        """Whether what the client publishes has to wait its turn."""
        return client in self._waiting

    def follow(self, client: str, action: Action) -> None:
        """Runs `action` once all has gone that the client has published before; it waits for something."""
        self._waiting[client].append(Turn(action, is_due=True))

    def begin(self, client: str) -> Turn:
        """The client's next message waits for something else until `end`; what follows waits for it."""
        turn = Turn()
        self._waiting.setdefault(client, deque()).append(turn)
        return turn

    def end(self, client: str, turn: Turn, action: Action = _nothing) -> None:
        """The message goes, or nothing if it was refused; and what has waited behind it."""
        turn.action, turn.is_due = action, True
        waiting = self._waiting[client]
        while waiting and waiting[0].is_due:
            waiting.popleft().action()
        if not waiting and self._waiting.get(client) is waiting:  # it may have begun anew
            del self._waiting[client]
