"""Conversations of one share group: all messages of one go to the same member (R6, continuous semaphore). Pure.

Theory of operation. A conversation is what one sender calls by one id. Its first message goes to any member with
capacity. That choice is in the session log before the message is sent, in a record of its own
(:class:`schemas.session_log.ConversationRecord`), so that the next home of the shard keeps it.

* One message of a conversation at a time is with its member; the next follows when that one is finished. So the order
  holds whatever comes back: a second one could pass the first while this is on its way back to the group.
* A message whose member has no capacity, or has another message of the conversation, stays in the group's queue, and
  those behind it go on. The group's record names it as not settled. At most `conversation_waiting` messages may wait.
* A member is gone if it is no member any more, or is another session, or has had no connection for
  `conversation_offline_s`. Then the next message goes to any member with capacity, and the choice is written anew.
  The record names that message: it tells the member that it does not know the history. Once the member has finished
  it, the record is written again without; if the home is killed before, the next message tells the member once more.
* A conversation without messages for `conversation_s` is forgotten. If there are as many as there may be, an idle one
  of the sender with most of these is (:mod:`gateway.shard.idle_conversations`). One of which a member has a message is
  never forgotten; if all are such, a new one waits.

When a conversation was used last is not in the log. A new home counts from its start.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gateway.shard.conversation_properties import conversation_of
from gateway.shard.group_clock import GroupClock
from gateway.shard.held_messages import ConversationKey, HeldMessages
from gateway.shard.idle_conversations import IdleConversations
from gateway.shard.messages import GROUP_MARK, Delivery
from gateway.shard.share_member import Assigned, Member
from schemas.envelope import Incarnation
from schemas.session_log import ConversationRecord
from schemas.share_settings import SharesSettings

if TYPE_CHECKING:
    from gateway.shard.share_group import ShareGroup

_FORGOTTEN_AT_ONCE: Final = 1_000


class Conversation(msgspec.Struct, eq=False):
    """`client` and `session` are the member; `number` is that of the assignment that the member has, 0 for none;
    `used` when it had one last, seconds of the group's clock.

    `restarted` is the place of the message that tells the member that another one had the conversation before, until
    the member has finished it. The member `was_sent` one of the conversation's messages: that may be, at least. The
    sender is to be told at most once, if it `owes_notice`: nobody has told it yet."""

    key: ConversationKey
    client: str
    session: Incarnation
    used: float
    number: int = 0
    restarted: tuple[int, int] | None = None
    was_sent: bool = False
    owes_notice: bool = False

    @property
    def record(self) -> ConversationRecord:
        return ConversationRecord(self.client, *self.session, self.restarted)

    def is_with(self, client: str, session: Incarnation) -> bool:
        """Whether this session is the member."""
        return self.client == client and self.session == session


class Choice(NamedTuple):
    """`member` gets the next message of the conversation `key`; None: nobody has capacity. `waits`: it has to wait for
    its own member, and others behind it may go on. Without a `key` it belongs to no conversation after all."""

    key: ConversationKey | None
    member: Member | None
    waits: bool = False


class Conversations:
    """Of `group`. `held` has what was passed over in the queue: :mod:`gateway.shard.held_messages`."""

    def __init__(self, group: "ShareGroup", settings: SharesSettings, clock: GroupClock) -> None:
        self._group = group
        self._settings = settings
        self._clock = clock
        self._known: dict[ConversationKey, Conversation] = {}
        self._idle = IdleConversations()
        self._is_short = False
        self._chosen: list[Conversation] = []
        self._forgotten: list[ConversationKey] = []
        self.held = HeldMessages()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: ConversationKey) -> Conversation | None:
        return self._known.get(key)

    @property
    def keys(self) -> list[ConversationKey]:
        return [*self._known]

    # -- which member --------------------------------------------------------------------------------------------------

    def choose(self, delivery: Delivery) -> Choice:
        """Who gets a message that was not passed over."""
        key = self._key_of(delivery)
        return Choice(key, None, True) if key in self.held else self._choose(key)

    def next_held(self) -> tuple[Delivery, Choice] | None:
        """The next message that was passed over and may go now, and who gets it; None if there is none."""
        for key, delivery in self.held.next_of_each_member():
            choice = self._choose(key)
            if not choice.waits:
                return delivery, choice
        return None

    def set_aside(self, delivery: Delivery, key: ConversationKey) -> bool:
        """The message waits, and those behind it may go on; False if too many wait so."""
        if len(self.held) >= self._settings.conversation_waiting:
            return False
        self.held.add(delivery, key)
        conversation = self._known.get(key)
        if conversation is None:
            self._is_short = True
        else:
            if not conversation.number:
                self.held.waits_for(key, conversation.client)
            if key in self._idle and conversation.used < self._clock.now:
                self._use(conversation)
        return True

    def _choose(self, key: ConversationKey | None) -> Choice:
        conversation = None if key is None else self._known.get(key)
        if conversation is None:
            is_full = len(self._known) >= self._settings.conversations and not self._idle
            return Choice(key, None, True) if key is not None and is_full else Choice(key, self._group.choose())
        member = self._group.member(conversation.client, conversation.session)
        if member is None or self._is_gone(member):
            return Choice(key, self._group.choose())
        waits = bool(conversation.number) or not member.has_capacity
        return Choice(key, None if waits else member, waits)

    def _is_gone(self, member: Member) -> bool:
        away_s = self._clock.now - member.away_since
        return member.capacity is None and away_s >= self._settings.conversation_offline_s

    def _key_of(self, delivery: Delivery) -> ConversationKey | None:
        """None if it belongs to none after all. Properties may be long; they are read once."""
        known = self.held.known_keys
        if delivery.place in known:
            return known[delivery.place]
        message = delivery.pending.message
        found = conversation_of(message.properties, self._settings.conversation_id_bytes)
        key = None if found is None or GROUP_MARK in message.source else ConversationKey(message.source, found)
        known[delivery.place] = key
        return key

    # -- what members have ---------------------------------------------------------------------------------------------

    def taken(self, assigned: Assigned, key: ConversationKey) -> None:
        """A member gets a message of a conversation."""
        conversation = self._known.get(key)
        if conversation is None:
            conversation = self._begin(key, assigned)
        elif not conversation.is_with(assigned.client, assigned.session):
            self._restart(conversation, assigned)
        elif conversation.restarted is not None:
            self._tell(conversation, assigned)
        self._is_taken(conversation, assigned)
        self.held.known_keys.pop(assigned.delivery.place, None)

    def taken_again(self, assigned: Assigned) -> None:
        """A member had the message before a restart."""
        key = self._key_of(assigned.delivery)
        conversation = None if key is None else self._known.get(key)
        if conversation is not None and conversation.is_with(assigned.client, assigned.session):
            self._is_taken(conversation, assigned)

    def tells(self, assigned: Assigned) -> bool:
        """Whether the message tells its member that another one had the conversation before."""
        conversation = assigned.conversation
        return (
            conversation is not None
            and conversation.restarted == assigned.delivery.place
            and conversation.is_with(assigned.client, assigned.session)
        )

    def take_notice(self, assigned: Assigned) -> ConversationKey | None:
        """The conversation, if the sender of the message is to be told that the member before is gone."""
        conversation = assigned.conversation
        if conversation is None or not conversation.owes_notice:
            return None
        conversation.owes_notice = False
        return conversation.key

    def delivered(self, assigned: Assigned) -> Conversation | None:
        """The member has it. Returns the conversation if nobody need be told any more that it is another member's."""
        conversation = assigned.conversation
        if conversation is None or not self.tells(assigned) or self._known.get(conversation.key) is not conversation:
            return None
        conversation.restarted = None
        return conversation

    def closed(self, assigned: Assigned) -> None:
        """The result of an assignment is there, or it was given back."""
        conversation = assigned.conversation
        if conversation is None or conversation.number != assigned.number:
            return
        conversation.number = 0
        conversation.was_sent |= assigned.times_sent > 0
        if self._known.get(conversation.key) is conversation:
            self._use(conversation)
            self.held.waits_for(conversation.key, conversation.client)
            if self._is_short:  # there is room for another one
                self.look_again()

    def look_again(self) -> None:
        """Whatever was passed over may go by now."""
        self._is_short = False
        self.held.clear()

    def _begin(self, key: ConversationKey, assigned: Assigned) -> Conversation:
        if len(self._known) >= self._settings.conversations:
            self._forget(self._idle.first_to_go)
        conversation = self._known[key] = Conversation(key, assigned.client, assigned.session, self._clock.now)
        self._chosen.append(conversation)
        return conversation

    def _restart(self, conversation: Conversation, assigned: Assigned) -> None:
        """Nobody need be told of a member that was sent nothing."""
        conversation.client, conversation.session = assigned.client, assigned.session
        if conversation.was_sent or conversation.number:
            conversation.restarted, conversation.owes_notice = assigned.delivery.place, True
        elif conversation.restarted is not None:
            self._tell(conversation, assigned)
        conversation.was_sent = False
        if conversation not in self._chosen:
            self._chosen.append(conversation)

    def _tell(self, conversation: Conversation, assigned: Assigned) -> None:
        """The message that was to tell the member may be over, and has not."""
        if conversation.restarted != assigned.delivery.place:
            conversation.restarted = assigned.delivery.place
            self._chosen.append(conversation)

    def _is_taken(self, conversation: Conversation, assigned: Assigned) -> None:
        conversation.number, assigned.conversation = assigned.number, conversation
        self._idle.discard(conversation.key)
        self.held.waits_for(conversation.key, None)

    def _use(self, conversation: Conversation) -> None:
        conversation.used = self._clock.now
        self._idle.add(conversation)

    def _forget(self, key: ConversationKey) -> None:
        self._idle.discard(key)
        del self._known[key]
        self._forgotten.append(key)

    # -- what is durable, and the end ----------------------------------------------------------------------------------

    def take_chosen(self) -> list[Conversation]:
        """Takes those whose member was chosen since the last time: the session log has to know before it is sent
        anything."""
        chosen, self._chosen = self._chosen, []
        return chosen

    def take_forgotten(self) -> list[ConversationKey]:
        """Takes those that were forgotten since the last time."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def expire(self) -> None:
        """Forgets conversations without messages for too long."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            oldest = self._idle.oldest
            if oldest is None or self._clock.now - oldest.used < self._settings.conversation_s:
                return
            self._forget(oldest.key)

    def recover(self, key: ConversationKey, record: ConversationRecord) -> None:
        """Takes up what an earlier life of the home has chosen."""
        if self._idle and len(self._known) >= self._settings.conversations:
            self._forget(self._idle.first_to_go)
        member = record.client, record.session
        conversation = Conversation(key, *member, self._clock.now, restarted=record.restarted, was_sent=True)
        self._known[key] = conversation
        self._idle.add(conversation)
