"""Messages of conversations that a share group has passed over in its queue: they wait for their members (R6). Pure.

Theory of operation. They stay in the queue, at its beginning, so that whatever treats the queue treats them too. To
look at all of them whenever anybody has acknowledged anything would cost the more, the more wait. So they are found
here: by conversation, and the conversations that wait for nothing but the capacity of a member by that member.

What is taken from here leaves the beginning of the queue. If anything else happens to that, the last one of it is not
where it was, or `clear` is called because something was put in; then the queue is looked at from its beginning again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.shard.messages import Delivery

Place = tuple[int, int]


class ConversationKey(NamedTuple):
    """The client id of the sender, and the id that it has chosen."""

    sender: str
    id: str


class HeldMessages:
    """`known_keys` are conversations of messages by place, None for none; those that nobody asks for are forgotten by
    `clear`."""

    def __init__(self) -> None:
        self.known_keys: dict[Place, ConversationKey | None] = {}
        self._messages: dict[ConversationKey, deque[Delivery]] = {}
        self._members: dict[ConversationKey, str] = {}
        self._of_member: dict[str, dict[ConversationKey, None]] = {}
        self._count = 0
        self._last: Delivery | None = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return key in self._messages

    def passed(self, queue: Sequence[Delivery]) -> int:
        """How many messages at the beginning of the queue are those held here."""
        if self._count and (len(queue) < self._count or queue[self._count - 1] is not self._last):
            self.clear()
        return self._count

    def add(self, delivery: Delivery, key: ConversationKey) -> None:
        """The message behind those that are held is passed over too."""
        self._messages.setdefault(key, deque()).append(delivery)
        self._count, self._last = self._count + 1, delivery

    def waits_for(self, key: ConversationKey, client: str | None) -> None:
        """The conversation, if messages of it are held, waits for a member to have capacity; None: for something else
        first."""
        before = self._members.pop(key, None)
        if before is not None:
            del self._of_member[before][key]
            if not self._of_member[before]:
                del self._of_member[before]
        if client is not None and key in self._messages:
            self._members[key] = client
            self._of_member.setdefault(client, {})[key] = None

    def next_of_each_member(self) -> Iterator[tuple[ConversationKey, Delivery]]:
        """For each member for which any wait the conversation that waits longest, and its first message."""
        for keys in self._of_member.values():
            key = next(iter(keys))
            yield key, self._messages[key][0]

    def remove(self, key: ConversationKey) -> None:
        """The first message of a conversation has left the queue."""
        messages = self._messages[key]
        delivery = messages.popleft()
        self._count -= 1
        self.known_keys.pop(delivery.place, None)
        if delivery is self._last:  # nobody knows which one is the last now
            self._last = None
        if not messages:
            self.waits_for(key, None)
            del self._messages[key]

    def clear(self) -> None:
        """They are in the queue like others."""
        self.known_keys = {held.place: key for key, messages in self._messages.items() for held in messages}
        self._messages.clear()
        self._members.clear()
        self._of_member.clear()
        self._count, self._last = 0, None
