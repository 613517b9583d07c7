"""When sessions end, and when their wills are due (G9; MQTT 5.0, 3.1.2.5, 3.1.2.11.2).

Where gateways share shards, the client of a session whose time is over may be connected to another one by now. So a
session ends by its timer only once it is known that no other gateway has the shard, as wills are published only then.
"""

from functools import partial

from gateway.shard.delivery import Deliverer
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.node import Node
from gateway.shard.presence import PresenceReporter
from gateway.shard.promises import Promises
from gateway.shard.session import Session
from gateway.shard.subscribing import Subscriber
from gateway.shard.timers import SessionTimers
from gateway.shard.wills import Wills


class SessionEnds:
    """Ends the `sessions` of one shard, by client."""

    def __init__(
        self,
        node: Node,
        sessions: dict[str, Session],
        timers: SessionTimers,
        wills: Wills,
        subscriber: Subscriber,
        deliverer: Deliverer,
        writer: SessionLogWriter,
        promises: Promises,
        presence: PresenceReporter,
    ) -> None:
        self._node = node
        self._sessions = sessions
        self._timers = timers
        self._wills = wills
        self._subscriber = subscriber
        self._deliverer = deliverer
        self._writer = writer
        self._promises = promises
        self._presence = presence

    def disconnected(self, session: Session) -> None:
        """The connection is gone: the session lives on until it expires, its will is due after its delay."""
        if session.will is not None:
            self._timers.after(min(session.will.delay_s, session.expiry_s), session, "will", self._wills.publish)
        if session.expiry_s == 0:
            self.end(session)
        elif session.logged:
            self._writer.opened(session)
            self._timers.after(session.expiry_s, session, "expiry", self._expire)

    def recovered(self, session: Session, now_ms: int) -> None:
        """A session found in the log: whoever was connected has lost the connection with the gateway. `now_ms` by the
        broker's clock."""
        disconnected_ms = session.disconnected_ms
        if disconnected_ms is None:
            disconnected_ms = now_ms
            session.lost_with_gateway(self._node.numbers.connection(session.shard, self._node.clock()), disconnected_ms)
            self._writer.opened(session)  # its time runs from now on, also if there is another crash
            self._presence.report(session, "lost", reason="gateway_restarted")
        gone_s = (now_ms - disconnected_ms) / 1000
        if session.will is not None:
            delay = min(session.will.delay_s, session.expiry_s) - gone_s
            self._timers.after(max(0.0, delay), session, "will", self._wills.publish)
        self._timers.after(max(0.0, session.expiry_s - gone_s), session, "expiry", self._expire)

    def end(self, session: Session) -> None:
        """The session is over: its will is due at the latest now (MQTT 5.0, 3.1.3.2.2)."""
        self._wills.publish(session)
        if session.in_log and session.wills_on_way:  # a record stays until Kafka has them: of a session without time
            session.expire()
            self._writer.opened(session)
        session.end()
        if self._sessions.get(session.client) is session:
            del self._sessions[session.client]
        self._timers.cancel(session.client)
        self._subscriber.forget(session)
        self._deliverer.end(session)
        if session.in_log:
            self._wills.end(session)

    def _expire(self, session: Session) -> None:
        """The session's time is over."""
        self._promises.after_barrier(partial(self._expired, session, session.epoch))

    def _expired(self, session: Session, connection: int) -> None:
        """Unless its client has come back meanwhile."""
        if session.link is None and session.epoch == connection and not session.ended:
            self.end(session)
