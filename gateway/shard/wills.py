"""Wills on their way: published once, and kept by the session log until Kafka has them (G9; MQTT 5.0, 3.1.2.5).

A crash may come between storing a will and noting that in the session log. The next start finds such a will on
`ingress`, by its id; therefore no checkpoint moves the position there on while anything of this is `settling`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import structlog

from gateway.shard.log_writer import ALL_KINDS, SessionLogWriter
from gateway.shard.promises import Promises
from gateway.shard.publishing import Publisher
from gateway.shard.session import Session
from mqtt.codes import ReasonCode
from schemas.session_log import WillRecord

_AGAIN_S: Final = 1.0

log = structlog.get_logger(__name__)


class Wills:
    """Publishes the wills of one shard's sessions, and ends sessions in the log as far as their wills allow it. Where
    gateways share shards a will waits until it is known that no other has the shard (`promises`)."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        publisher_of: Callable[[str], Publisher],
        writer: SessionLogWriter,
        promises: Promises,
    ) -> None:
        self._sessions = sessions
        self._publisher_of = publisher_of
        self._writer = writer
        self._promises = promises
        self._settling: set[Session] = set()

    def publish(self, session: Session) -> None:
        """The session's will is due, if it has one."""
        will = session.take_will()
        if will is None:
            return
        self._settling.add(session)
        self._promises.after_barrier(partial(self._send, session, will))

    def _send(self, session: Session, will: WillRecord) -> None:
        self._publisher_of(session.client).publish_will(will, partial(self._sent, session, will))

    def _sent(self, session: Session, will: WillRecord, reason: ReasonCode) -> None:
        """Kafka has the will, or never takes it; what it refuses for another cause is sent again."""
        if reason in (ReasonCode.SUCCESS, ReasonCode.PACKET_TOO_LARGE):
            if reason is not ReasonCode.SUCCESS:
                log.error("a will is too large for Kafka: it is not published", client=session.client[:128])
            self._stored(session, will)
        else:
            send = partial(self._send, session, will)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._promises.after_barrier, send)

    def is_on_way(self, client: str) -> bool:
        """Whether a will of the client is on its way: until Kafka has it, the session log keeps it."""
        return any(session.client == client and session.wills_on_way for session in self._settling)

    @property
    def is_settling(self) -> bool:
        """Whether the session log may not know yet of a will that `ingress` has."""
        return bool(self._settling)

    def end(self, session: Session) -> None:
        """Ends the session in the log; the record that holds the will goes only when Kafka has the will."""
        kinds = ALL_KINDS if not session.wills_on_way else ALL_KINDS[1:]
        self._writer.ended(session, partial(self._settled, session), kinds)

    def recovered(self, sessions: Iterable[Session]) -> None:
        """At start: wills that `ingress` has, and of which the session log does not know that."""
        self._settling.update(sessions)

    def log_recovered(self, sessions: Iterable[Session]) -> None:
        """Tells the session log of those."""
        for session in sessions:
            if not session.ended:
                self._writer.opened(session, partial(self._settled, session))

    async def stored(self, session: Session) -> None:
        """Returns once Kafka has those that are on their way: until then the session log must keep them, and the next
        connection's record is going to take their place."""
        while session.wills_on_way:
            await self._writer.durable(session.after_wills)

    def _stored(self, session: Session, will: WillRecord) -> None:
        session.will_stored(will)
        settled = partial(self._settled, session)
        successor = self._sessions.get(session.client)
        if not session.ended and session.in_log:
            self._writer.opened(session, settled)
        elif session.ended and not session.wills_on_way and (successor is None or not successor.in_log):
            self._writer.ended(session, settled, ALL_KINDS[:1])
        elif successor is not None and successor.in_log:
            self._writer.opened(successor, settled)
        else:
            settled()
        for go_on in session.take_will_waiters():
            go_on()

    def _settled(self, session: Session) -> None:
        """The session log says no more of the session's wills than are still to be published."""
        if not session.wills_on_way:
            self._settling.discard(session)
