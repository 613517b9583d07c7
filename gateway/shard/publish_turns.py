"""What a client publishes goes to `ingress` in its order, though some of it waits for its retained copy first (R8).
Pure."""

from collections import deque
from collections.abc import Callable

Action = Callable[[], bool | None]
"""Sends a message on. True: it cannot go yet, and waits for `go_on`, and what follows with it."""


class Turn:
    """The place of a message; it waits as long as it has no action. Only :class:`PublishTurns` assigns that."""

    __slots__ = ("action",)

    def __init__(self, action: Action | None = None) -> None:
        self.action = action


class PublishTurns:
    """Of all clients of a shard, by client; over their connections. Most of them wait for nothing."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Turn]] = {}

    def waits(self, client: str) -> bool:
        """Whether what the client publishes has to wait its turn."""
        return client in self._waiting

    def follow(self, client: str, action: Action) -> None:
        """Runs `action` once all has gone that the client has published before; it waits for something."""
        self._waiting[client].append(Turn(action))

    def begin(self, client: str) -> Turn:
        """The client's next message waits for something else until `end`; what follows waits for it."""
        turn = Turn()
        self._waiting.setdefault(client, deque()).append(turn)
        return turn

    def end(self, client: str, turn: Turn, action: Action) -> None:
        """The message waits for nothing more: runs `action` in its turn, and then what has waited behind it."""
        turn.action = action
        self.go_on(client)

    def go_on(self, client: str) -> None:
        """Runs what is due, again what could not go."""
        waiting = self._waiting.get(client, deque())
        while waiting and (due := waiting[0].action) is not None:
            turn = waiting.popleft()
            if due():
                waiting.appendleft(turn)
                return
        if not waiting and self._waiting.get(client) is waiting:  # it may have begun anew
            del self._waiting[client]
