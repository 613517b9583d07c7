"""The conversations of a shard's share groups, and their records in the session log (R6). Pure: no clock, no I/O.

What members are sent waits until the choice is durable. That a conversation is over may be written later: a home that
finds the record goes on with the same member.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.counts import Counts
from gateway.shard.conversation_properties import restarted
from gateway.shard.conversations import Choice, Conversation, Conversations
from gateway.shard.group_clock import GroupClock
from gateway.shard.group_needs import GroupLog
from gateway.shard.held_messages import ConversationKey
from gateway.shard.messages import Delivery, Message
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_member import Assigned
from gateway.shard.share_messages import Result
from schemas.envelope import CONVERSATION_FLAG
from schemas.session_log import ConversationRecord
from schemas.share_settings import SharesSettings

_ENDED_AT_ONCE: Final = 1_000


class ConversationKeeper:
    """Of the groups of one shard. `notify` tells the sender of a message that the member which had its conversation, of
    this id, is gone."""

    def __init__(
        self,
        log: GroupLog,
        settings: SharesSettings,
        clock: GroupClock,
        counts: Counts[str],
        notify: Callable[[Message, str], None],
    ) -> None:
        self._session_log = log
        self._settings = settings
        self._clock = clock
        self._counts = counts
        self._notify = notify
        self._over: dict[tuple[str, ConversationKey], ShareGroup] = {}
        """Whose records are still to be ended, by group and conversation."""

    # -- assigning -----------------------------------------------------------------------------------------------------

    def passed(self, group: ShareGroup) -> int:
        """How many messages at the beginning of the queue wait for their members."""
        return 0 if group.conversations is None else group.conversations.held.passed(group.queue)

    def next_held(self, group: ShareGroup) -> tuple[Delivery, Choice] | None:
        """The next of those that may go now."""
        return None if group.conversations is None else group.conversations.next_held()

    def choose(self, group: ShareGroup, delivery: Delivery) -> Choice:
        """Who gets a message that is marked as one of a conversation and was not passed over."""
        return self._of(group).choose(delivery)

    def set_aside(self, group: ShareGroup, delivery: Delivery, choice: Choice) -> bool:
        """It waits for its member; False if it must not be passed over, because too many were."""
        may_wait = choice.key is not None and self._of(group).set_aside(delivery, choice.key)
        if may_wait:
            group.pass_over(delivery)
        return may_wait

    def let_go(self, group: ShareGroup, choice: Choice) -> None:
        """The first of a conversation that was passed over has left the queue."""
        if choice.key is not None and group.conversations is not None:
            group.conversations.held.remove(choice.key)

    def taken(self, group: ShareGroup, assigned: Assigned, choice: Choice) -> None:
        """A member gets the message."""
        if choice.key is not None:
            self._of(group).taken(assigned, choice.key)

    def taken_again(self, group: ShareGroup, assigned: Assigned) -> None:
        """A member had a message before a restart."""
        if group.conversations is not None and CONVERSATION_FLAG in assigned.delivery.pending.message.flags:
            group.conversations.taken_again(assigned)

    def message(self, assigned: Assigned) -> Message:
        """What the member is sent."""
        message, conversations = assigned.delivery.pending.message, assigned.group.conversations
        if conversations is None or not conversations.tells(assigned):
            return message
        if (key := conversations.take_notice(assigned)) is not None:
            self._notify(message, key.id)
        return msgspec.structs.replace(message, properties=restarted(message.properties))

    def finished(self, assigned: Assigned, result: Result) -> None:
        """The result is there."""
        conversations = assigned.group.conversations
        if conversations is None or result not in ("delivered", "sent"):
            return
        if (told := conversations.delivered(assigned)) is not None:
            self._write(assigned.group, told, None)

    def may_load(self, group: ShareGroup) -> bool:
        """Whether all that is in the queue, if anything is, was passed over, and more may be."""
        waiting = 0 if group.conversations is None else len(group.conversations.held)
        return waiting == len(group.queue) < self._settings.conversation_waiting

    # -- the session log -----------------------------------------------------------------------------------------------

    def log(self, group: ShareGroup, then: Callable[[], None] | None) -> bool:
        """Writes the choices that were made since the last time; `then` runs once they are durable. False if there are
        none."""
        conversations = group.conversations
        if conversations is None:
            return False
        for key in conversations.take_forgotten():
            self._session_log.conversation(group, key, None, None)
            self._counts["conversations_forgotten"] += 1
        chosen = conversations.take_chosen()
        for number, conversation in enumerate(chosen, 1):
            self._write(group, conversation, then if number == len(chosen) else None)
        return bool(chosen)

    def _write(self, group: ShareGroup, conversation: Conversation, then: Callable[[], None] | None) -> None:
        self._over.pop((group.name, conversation.key), None)
        self._session_log.conversation(group, conversation.key, conversation.record, then)

    def recover(self, group: ShareGroup, key: ConversationKey, record: ConversationRecord) -> None:
        """Takes up what an earlier life of the home has chosen."""
        if self._settings.conversations:
            self._of(group).recover(key, record)
        else:
            self._over[group.name, key] = group

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self, group: ShareGroup) -> None:
        """The group has no members any more."""
        if group.conversations is not None:
            self._over |= {(group.name, key): group for key in group.conversations.keys}
            group.end_conversations()

    def sweep(self, group: ShareGroup) -> bool:
        """Every second: forgets those that are over. Whether messages may wait for members, who may be gone by now."""
        conversations = group.conversations
        if conversations is None:
            return False
        conversations.expire()
        self._over |= {(group.name, key): group for key in conversations.take_forgotten()}
        conversations.look_again()
        return bool(group.queue)

    def end_records(self) -> None:
        """Every second: so many at a time, for a group may have a lot of them."""
        for name, key in list(self._over)[:_ENDED_AT_ONCE]:
            self._session_log.conversation(self._over.pop((name, key)), key, None, None)

    def _of(self, group: ShareGroup) -> Conversations:
        if group.conversations is None:
            group.begin_conversations(Conversations(group, self._settings, self._clock))
        assert group.conversations is not None
        return group.conversations
