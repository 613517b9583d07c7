"""Writing again in the session log what void records have overwritten, while the home serves (G7;
:mod:`gateway.cluster.fencing`).

What is written is what the home knows now. That may be ahead of its last valid record, and is as good: each record says
what is durable *before* something is sent, so it may always come earlier.
"""

from collections.abc import Callable, Mapping

from gateway.shard.held_messages import ConversationKey
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import GROUP_MARK
from gateway.shard.session import Session
from gateway.shard.session_records import (
    conversation_of_key,
    conversation_record,
    group_record,
    opened_record,
    subscribed_record,
    window_record,
)
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_groups import ShareGroups
from schemas.errors import RecordError
from schemas.session_log import (
    KIND_OF_GROUP,
    KIND_OF_MEMBER,
    KINDS_OF_SESSION,
    MemberRecord,
    Record,
    SessionKey,
    encode,
)

_OPENED, _SUBSCRIBED, _WINDOWS = KINDS_OF_SESSION


class SessionMender:
    """Of one shard, with these `sessions` and `groups`. `has_will_on_way` says of a client whether a will of its is
    being published: that writes the record anew."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        groups: ShareGroups,
        has_will_on_way: Callable[[str], bool],
        writer: SessionLogWriter,
    ) -> None:
        self._sessions = sessions
        self._groups = groups
        self._has_will_on_way = has_will_on_way
        self._writer = writer

    def mend(self, raw_key: bytes) -> None:
        """The last record of this key is void."""
        try:
            key = SessionKey.decode(raw_key)
        except RecordError:
            self.remove(raw_key)
            return
        if key.kind == _OPENED and self._has_will_on_way(key.client):
            return
        record = self._present(key)
        self._writer.rewrite(raw_key, None if record is None else encode(record))

    def remove(self, raw_key: bytes) -> None:
        """A tombstone: nothing belongs under this key any more."""
        self._writer.rewrite(raw_key, None)

    def _present(self, key: SessionKey) -> Record | None:
        if key.kind == KIND_OF_MEMBER:
            return self._member(key.client)
        if key.kind == KIND_OF_GROUP and (found := conversation_of_key(key)) is not None:
            return self._conversation(*found)
        session = self._sessions.get(key.client)
        if session is None or session.ended:
            return None
        if isinstance(session, ShareGroup):
            return group_record(session) if key.kind == KIND_OF_GROUP else None
        if not session.in_log:
            return None
        if key.kind == _OPENED:
            return opened_record(session)
        if key.kind == _SUBSCRIBED:
            return subscribed_record(session)
        return window_record(session) if key.kind == _WINDOWS and session.persistent else None

    def _member(self, name_and_client: str) -> Record | None:
        _, name, client = (*name_and_client.split(GROUP_MARK), "", "")[:3]
        group = self._groups.find(name)
        member = None if group is None else group.members.get(client)
        if group is None or member is None or group.subscription is None:
            return None
        return MemberRecord(*member.session, self._groups.record_of(group, member.record))

    def _conversation(self, name: str, key: ConversationKey) -> Record | None:
        group = self._groups.find(name)
        found = None if group is None or group.conversations is None else group.conversations.find(key)
        return None if group is None or found is None else conversation_record(group, found.record)
