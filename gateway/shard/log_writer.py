"""Writing the session log: actions that must not happen before a record is durable wait for it here."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from gateway.bus import Bus
from gateway.shard.messages import GROUP_MARK
from gateway.shard.session import Session
from gateway.shard.session_records import opened_record, subscribed_record, window_record
from gateway.shard.share_group import ShareGroup, group_record
from schemas.session_log import KIND_OF, KIND_OF_MEMBER, KINDS_OF_SESSION, MemberRecord, Record, SessionKey, encode

Action = Callable[[], None]
ALL_KINDS = KINDS_OF_SESSION


async def durable(write: Callable[[Action], None]) -> None:
    """Returns once what `write` writes is stored, which calls its argument then."""
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resolve() -> None:
        if not stored.done():  # nobody waits any more
            stored.set_result(None)

    write(resolve)
    await stored


class SessionLogWriter:
    """Writes records of the sessions of one shard to `topic`; each `then` runs on the loop once its record is stored.

    A session that has ended writes nothing but tombstones: its client's next session has the same keys. Its `then`
    runs at once, so that nobody waits for ever.
    """

    def __init__(self, bus: Bus, topic: str, shard: int, on_fatal: Callable[[Exception], None]) -> None:
        self._bus = bus
        self._topic = topic
        self._shard = shard
        self._on_fatal = on_fatal

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
        self._produce(key, None if record is None else encode(record), then)

    def barrier(self, then: Action) -> None:
        """`then` runs once all that was written before is stored."""
        self._produce(SessionKey("", KINDS_OF_SESSION[0]), None, then)

    def forget(self, key: SessionKey) -> None:
        """A tombstone for a record that belongs to nothing any more."""
        self._produce(key, None, None)

    def windows(self, session: Session, then: Action) -> None:
        """Writes the session's windows as they are by then; calls while a record is on its way share the next one."""
        if session.after_log(then):
            self._write_windows(session)

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
            if then is not None:
                then()
            return
        self._send(session, KIND_OF[type(record)], encode(record), then)

    def _send(self, session: Session, kind: str, value: bytes | None, then: Action | None) -> None:
        self._produce(SessionKey(session.client, kind), value, then)

    def _produce(self, key: SessionKey, value: bytes | None, then: Action | None) -> None:
        def done(error: Any, _record: Any) -> None:
            if error is not None:
                self._on_fatal(RuntimeError(f"cannot write to the session log: {error.str()}"))
            elif then is not None:
                then()

        self._bus.produce(self._topic, self._shard, key.encode(), value, None, done)
