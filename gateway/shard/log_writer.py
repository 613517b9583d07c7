"""Writing the session log: actions that must not happen before a record is durable wait for it here."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gateway.bus import Bus
from gateway.record import Record as BusRecord
from gateway.shard.held_messages import ConversationKey
from gateway.shard.messages import GROUP_MARK
from gateway.shard.promises import Action, Promises
from gateway.shard.session import Session
from gateway.shard.session_records import (
    conversation_key,
    conversation_record,
    group_record,
    opened_record,
    subscribed_record,
    window_record,
)
from gateway.shard.share_group import ShareGroup
from schemas.envelope import Headers
from schemas.fences import epoch_headers
from schemas.session_log import (
    KIND_OF,
    KIND_OF_MEMBER,
    KINDS_OF_SESSION,
    ConversationRecord,
    MemberRecord,
    Record,
    SessionKey,
    encode,
)

ALL_KINDS = KINDS_OF_SESSION
_BARRIER = SessionKey("", KINDS_OF_SESSION[0]).encode()


class SessionLogWriter:
    """Writes records of the sessions of one shard to `topic`; each `then` runs on the loop once its record is stored,
    and counts (:mod:`gateway.shard.promises`). Once another gateway has the shard nothing is written.

    A session that has ended writes nothing but tombstones: its client's next session has the same keys. Its `then`
    runs at once, so that nobody waits for ever.
    """

    def __init__(
        self, bus: Bus, topic: str, shard: int, on_fatal: Callable[[Exception], None], promises: Promises
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._shard = shard
        self._on_fatal = on_fatal
        self._promises = promises
        self._headers: Headers | None = None

    def begin(self, epoch: int) -> None:
        """Before the first record: the epoch of the home."""
        self._headers = epoch_headers(epoch)

    async def durable(self, write: Callable[[Action], None]) -> None:
        """Returns once what `write` writes is stored and counts, which calls its argument then. Raises ShardLost."""
        await self._promises.wait(write)

    @property
    def is_lost(self) -> bool:
        """Whether another gateway has the shard: nothing more is to be sent to its clients."""
        return self._promises.is_lost

    def check(self) -> None:
        """Raises ShardLost if another gateway has the shard."""
        self._promises.check()

    def opened(self, session: Session, then: Action | None = None) -> None:
        session.note_in_log(is_there=True)
        self._put(session, opened_record(session), then)

    def subscribed(self, session: Session, then: Action | None = None) -> None:
        self._put(session, subscribed_record(session), then)

    def ended(self, session: Session, then: Action | None = None, kinds: Sequence[str] = ALL_KINDS) -> None:
        """Tombstones for all kinds; `then` runs after the last."""
        session.note_in_log(is_there=False)
        for kind in kinds:
            self._send(session, kind, None, then if kind == kinds[-1] else None)

    def gone(self, session: Session, then: Action) -> None:
        """`then` runs once all that `ended` has written is stored: one more tombstone stands behind the others."""
        self.ended(session, then, ALL_KINDS[-1:])

    def member(self, group: ShareGroup, client: str, record: MemberRecord | None, then: Action | None = None) -> None:
        """A member of a share group; None if it is one no more."""
        key = SessionKey(f"{group.client}{GROUP_MARK}{client}", KIND_OF_MEMBER)
        self._produce(key.encode(), None if record is None else encode(record), then)

    def conversation(
        self, group: ShareGroup, key: ConversationKey, record: ConversationRecord | None, then: Action | None
    ) -> None:
        """Which member has a conversation; None if it is over."""
        value = None if record is None else encode(conversation_record(group, record))
        self._produce(conversation_key(group, key).encode(), value, then)

    def barrier(self, then: Action) -> None:
        """`then` runs once all that was written before is stored, and counts."""
        if self._promises.are_read_back:
            self._promises.after_barrier(then)
        else:
            self.write_barrier(then)

    def confirmed(self, then: Action) -> None:
        """`then` runs once it is known that the shard was this home's until now; at once if none are shared."""
        self._promises.after_barrier(then)

    def write_barrier(self, then: Action) -> None:
        """A record without meaning; `then` runs once it is stored, and counts."""
        self._produce(_BARRIER, None, then)

    def forget(self, key: SessionKey) -> None:
        """A tombstone for a record that belongs to nothing any more."""
        self._produce(key.encode(), None, None)

    def rewrite(self, key: bytes, value: bytes | None) -> None:
        """Writes again what a void record has overwritten; None for a tombstone."""
        self._produce(key, value, None)

    def windows(self, session: Session, then: Action) -> None:
        """Writes the session's windows as they are by then; calls while a record is on its way share the next one."""
        if session.after_log(then):
            self._write_windows(session)

    async def caught_up(self, session: Session) -> None:
        """Returns once the session log has the session's windows as they are now. Raises ShardLost."""
        if session.is_logging:
            await self.durable(partial(self.windows, session))

    def _write_windows(self, session: Session) -> None:
        actions = session.begin_record()

        def stored() -> None:
            session.end_record()
            for action in actions:
                action()
            if session.is_record_due:
                self._write_windows(session)

        record = group_record(session) if isinstance(session, ShareGroup) else window_record(session)
        self._put(session, record, stored)

    def _put(self, session: Session, record: Record, then: Action | None) -> None:
        if session.ended:
            if then is not None and not self._promises.is_lost:
                then()
            return
        self._send(session, KIND_OF[type(record)], encode(record), then)

    def _send(self, session: Session, kind: str, value: bytes | None, then: Action | None) -> None:
        self._produce(SessionKey(session.client, kind).encode(), value, then)

    def _produce(self, key: bytes, value: bytes | None, then: Action | None) -> None:
        promises = self._promises
        if promises.is_lost:
            return

        def done(error: Any, record: BusRecord) -> None:
            if error is not None:
                self._on_fatal(RuntimeError(f"cannot write to the session log: {error.str()}"))
            elif then is not None:
                promises.stored(record.offset(), then)

        self._bus.produce(self._topic, self._shard, key, value, self._headers, done)
