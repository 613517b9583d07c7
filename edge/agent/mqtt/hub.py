"""What the connections of the listener share: who is connected, where messages go, and wills (M16).

A client id has one connection at most: a newer one takes the session over (3.1.4). Changes of the store are made in the
order in which they are handed in, so the end of the older connection is on disk before the newer one begins.
"""

import asyncio
import logging
from typing import Final, Protocol

from edge.agent.errors import SessionRefused
from edge.agent.mailroom import new_id
from edge.agent.mqtt.changes import AGAIN_S, Changes
from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.sessions import Attached, log_ended
from edge.agent.mqtt.settings import ListenerSettings
from edge.agent.mqtt.store import Exchange, Taken
from edge.agent.mqtt.topic_routes import LOCAL, TopicRoutes
from edge.client.errors import DiskFull, NotAccepted, StoreError
from mqtt.codes import ReasonCode
from mqtt.packets import Publish, Will
from mqtt.topics import is_bridge_state
from schemas.visible import visible

ONWARD: Final = "onward"
"""The lane to the platform and to other agents."""

_log: Final = logging.getLogger("waystation.agent")


class Client(Protocol):
    """A connected client, as the hub sees it."""

    user: str

    def wake(self) -> None:
        """More is in its queue."""
        ...

    def send_live(self, packet: Publish) -> bool:
        """A message of QoS 0; False if it is dropped."""
        ...

    def end(self, reason: ReasonCode, detail: str) -> None: ...


class Hub:
    """`news` is called with the lane when something was put into the spool, and `filters_changed` when subscriptions
    have changed. `dropped` counts messages of QoS 0 that were not passed on."""

    def __init__(self, settings: ListenerSettings, routes: TopicRoutes, changes: Changes) -> None:
        self._settings, self._routes, self.changes = settings, routes, changes
        self._clients: dict[str, Client] = {}
        self._wills: dict[str, tuple[asyncio.TimerHandle, Will]] = {}  # that wait for their delay
        self._full: list[tuple[MqttMessage, str]] = []  # wills, while the disk is full; each of a client that was here
        self.news = asyncio.Event()
        self.filters_changed = asyncio.Event()
        self.dropped = 0

    @property
    def connected(self) -> int:
        return len(self._clients)

    # -- clients -------------------------------------------------------------------------------------------------------

    def attach(self, client_id: str, user: str, client: Client) -> None:
        """A client has authenticated. Raises SessionRefused if another user is connected with its client id."""
        older = self._clients.get(client_id)
        if older is not None:
            if older.user != user:
                raise SessionRefused(ReasonCode.NOT_AUTHORIZED, "another user is connected with this client id")
            older.end(ReasonCode.SESSION_TAKEN_OVER, "another connection has the same client id")
        self._clients[client_id] = client

    def began(self, client_id: str, attached: Attached) -> None:
        """A client has its session. A will that waits for its delay is not published if the session goes on
        (3.1.3.2.2); it is published now if the session has ended (3.1.2.5)."""
        log_ended(client_id, attached.lost)
        delayed = self._wills.pop(client_id, None)
        if delayed is not None:
            timer, will = delayed
            timer.cancel()
            if not attached.is_present:
                self._publish_will(client_id, will)

    def detach(self, client_id: str, client: Client) -> bool:
        """A client's connection has ended; False if another one has its session already."""
        if self._clients.get(client_id) is not client:
            return False
        del self._clients[client_id]
        return True

    def leave(self, client_id: str, session: int, expiry_s: int, sent: int) -> None:
        """The session has no connection any more; see :meth:`edge.agent.mqtt.sessions.Sessions.leave`. It is tried
        until the store takes it, or the client is back: else the session would never expire."""

        def left(future: "asyncio.Future[int]") -> None:
            self.filters_changed.set()
            if future.exception() is None:
                log_ended(client_id, future.result())
            elif isinstance(future.exception(), StoreError):
                asyncio.get_running_loop().call_later(AGAIN_S, again)

        def again() -> None:
            if client_id not in self._clients:
                self.leave(client_id, session, expiry_s, sent)

        self.changes.make(lambda store: store.sessions.leave(session, expiry_s, store.now_s, sent)).add_done_callback(
            left
        )

    def route(self, topic: str) -> str | None:
        """Where a local client's message goes; None: nowhere. What a bridge of mosquitto tells of itself stays here
        unless there is a route for it: the bridge would not stay if it were refused."""
        target = self._routes.of(topic)
        return LOCAL if target is None and is_bridge_state(topic) else target

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, client_id: str, packet: Publish, session: int) -> "asyncio.Future[Taken]":
        """Takes what a client has published. Fails with NotAccepted, StoreError; SessionRefused if there is no
        route."""
        exchange = Exchange(session, packet.packet_id) if packet.qos == 2 else None
        return self._take(MqttMessage.of(new_id(), packet), client_id, exchange)

    def publish_will(self, client_id: str, will: Will, delay_s: float) -> None:
        """Publishes the will of a client that is gone, after its delay."""

        def publish() -> None:
            del self._wills[client_id]
            self._publish_will(client_id, will)

        if delay_s:
            self._wills[client_id] = asyncio.get_running_loop().call_later(delay_s, publish), will
        else:
            self._publish_will(client_id, will)

    def distribute(self, taken: Taken) -> None:
        """Something new is on disk, or live: clients here get it."""
        for client_id in taken.queued:
            client = self._clients.get(client_id)
            if client is not None:
                client.wake()
        for client_id, packet in taken.live:
            client = self._clients.get(client_id)
            if client is not None and not client.send_live(packet):
                self.dropped += 1

    def close(self) -> None:
        """No more wills."""
        for timer, _ in self._wills.values():
            timer.cancel()
        self._wills.clear()
        for client in list(self._clients.values()):
            client.end(ReasonCode.SERVER_SHUTTING_DOWN, "the agent is ending")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _publish_will(self, client_id: str, will: Will) -> None:
        self._insist(MqttMessage.of(new_id(), will), client_id)

    def _insist(self, message: MqttMessage, client_id: str) -> None:
        """Takes a will. Nobody else has it, so it waits here while the disk is full."""

        def taken(future: "asyncio.Future[Taken]") -> None:
            error = future.exception()
            if isinstance(error, DiskFull) and len(self._full) < self._settings.connections:
                self._full.append((message, client_id))
                if len(self._full) == 1:
                    _log.warning("wills wait to be published: %s", error)
                    asyncio.get_running_loop().call_later(AGAIN_S, self._insist_again)
            elif error is not None:
                _log.warning("the will of %s was not published: %s", visible(client_id), error)

        self._take(message, client_id, None).add_done_callback(taken)

    def _insist_again(self) -> None:
        waiting, self._full = self._full, []
        for message, client_id in waiting:
            self._insist(message, client_id)

    def _take(self, message: MqttMessage, client_id: str, exchange: Exchange | None) -> "asyncio.Future[Taken]":
        target = self.route(message.topic)
        problem = "" if target is not None else f"there is no route for the topic {message.topic[:200]!r}"
        if message.has_long_names:
            problem = "the name of a user property is too long"
        if problem:
            refused: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
            refused.set_exception(SessionRefused(ReasonCode.NOT_AUTHORIZED, problem))
            refused.exception()
            return refused
        assert target is not None
        is_local = self._settings.local_delivery or target == LOCAL
        spool = () if target == LOCAL else ((ONWARD, target),)
        future = self.changes.make(
            lambda store: store.take(message, publisher=client_id, exchange=exchange, spool=spool, is_local=is_local)
        )
        future.add_done_callback(self._taken)
        return future

    def _taken(self, future: "asyncio.Future[Taken]") -> None:
        if not future.cancelled() and future.exception() is None:
            self.distribute(future.result())
            self.news.set()


def reason_of(error: BaseException) -> ReasonCode:
    """The reason code that tells a publisher why its message was not taken."""
    if isinstance(error, SessionRefused):
        return error.reason
    if isinstance(error, NotAccepted | StoreError):
        return ReasonCode.QUOTA_EXCEEDED
    return ReasonCode.UNSPECIFIED_ERROR
