"""The conversations of a share group of which no member has a message, and which of them is forgotten first (R6). Pure.

If there are too many, the sender that has most of them loses the one that it has not used for longest. So a sender with
many ids forgets its own ones, and not those of others. Each operation takes constant time, however many there are.
"""

from typing import TYPE_CHECKING

from gateway.shard.held_messages import ConversationKey

if TYPE_CHECKING:
    from gateway.shard.conversations import Conversation


class IdleConversations:
    """Each that is added was used last."""

    def __init__(self) -> None:
        self._all: dict[ConversationKey, Conversation] = {}
        self._of: dict[str, dict[ConversationKey, None]] = {}
        """By sender, the one not used for longest first."""
        self._senders: dict[int, dict[str, None]] = {}
        """By how many they have; no entry is empty."""
        self._most = 0
        """How many the sender with most of them has."""

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: ConversationKey) -> bool:
        return key in self._all

    def add(self, conversation: "Conversation") -> None:
        key = conversation.key
        self.discard(key)
        self._all[key] = conversation
        own = self._of.setdefault(key.sender, {})
        own[key] = None
        self._count(key.sender, len(own) - 1, len(own))

    def discard(self, key: ConversationKey) -> None:
        if self._all.pop(key, None) is None:
            return
        own = self._of[key.sender]
        del own[key]
        self._count(key.sender, len(own) + 1, len(own))
        if not own:
            del self._of[key.sender]

    @property
    def oldest(self) -> "Conversation | None":
        """The one that was not used for longest."""
        return next(iter(self._all.values()), None)

    @property
    def first_to_go(self) -> ConversationKey:
        """The one to forget if there are too many. There must be one."""
        sender = next(iter(self._senders[self._most]))
        return next(iter(self._of[sender]))

    def _count(self, sender: str, before: int, now: int) -> None:
        if before:
            of_before = self._senders[before]
            del of_before[sender]
            if not of_before:
                del self._senders[before]
        if now:
            self._senders.setdefault(now, {})[sender] = None
        self._most = max(self._most, now)
        if self._most not in self._senders:  # it was the only one, and has one less
            self._most = now
