"""What a session's client is sent, from its queue on disk: a window in memory, acknowledged and refilled (4.4, 4.9).

A delivery has its packet id on disk before it is sent. It leaves the disk when the exchange has ended; PUBREC is on
disk before PUBREL is sent. If the agent is killed in between, the delivery is sent again under the same packet id.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from edge.agent.mqtt.changes import AGAIN_S, Change, Changes
from edge.agent.mqtt.message import EXPIRY
from edge.agent.mqtt.sessions import Delivery
from edge.agent.mqtt.store import MqttStore
from edge.client.errors import DiskFull
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqtt.server_connection import ServerConnection

_log: Final = logging.getLogger("waystation.agent")
LOAD_AGAIN_S: Final = 0.1
_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


class Outgoing:
    """`window`: how many deliveries may be in flight. `flush` writes what the connection has to send, and `fail` ends
    it if the store cannot be used: then all begins anew with the next connection. While the disk is full, what has
    ended stays on it, and its removal is tried again. `sent` is the newest delivery that was sent, `dropped` counts
    messages that the client does not accept."""

    def __init__(
        self,
        changes: Changes,
        core: ServerConnection,
        session: int,
        window: int,
        flush: Callable[[], None],
        fail: Callable[[], None],
    ) -> None:
        self._changes, self._core, self._session = changes, core, session
        self._window, self._flush, self._fail = window, flush, fail
        self._in_flight: dict[int, Delivery] = {}
        self._unmade: list[Change] = []  # that end deliveries, while the disk is full
        self._after = 0
        self._is_loading = self._is_more = self._has_ended = False
        self._is_writable = True
        self._has_complained = False
        self.sent = self.dropped = 0

    def wake(self) -> None:
        """There may be more in the queue."""
        self._is_more = True
        self._pump()

    def end(self) -> None:
        self._has_ended = True

    def writable(self, is_writable: bool) -> None:
        """Whether the network accepts more."""
        self._is_writable = is_writable
        self._pump()

    def send_live(self, packet: Publish) -> bool:
        """A message of QoS 0, if the network accepts it now; False if it is dropped."""
        if not self._is_writable or self._has_ended or not self._fits(packet):
            self.dropped += 1
            return False
        self._core.send(packet)
        self._flush()
        return True

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """The client has answered a delivery, or what is none."""
        delivery = self._in_flight.get(packet.packet_id)
        if isinstance(packet, Pubrec) and packet.reason_code < _FAILURE:
            if delivery is None or delivery.qos != 2:
                self._core.send(Pubrel(packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
                return
            self._release(delivery)
        elif delivery is not None and _ends(packet, delivery):
            self._finish(delivery)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _finish(self, delivery: Delivery) -> None:
        del self._in_flight[delivery.packet_id]
        number = delivery.number
        self._end_delivery(lambda store: store.sessions.finish(number))
        self._pump()

    def _end_delivery(self, change: Change) -> None:
        def made(future: "asyncio.Future[Any]") -> None:
            if not isinstance(future.exception(), DiskFull):
                self._has_complained = False
                self._check(future)
            elif not self._has_ended:
                if not self._has_complained:
                    _log.warning("deliveries that have ended stay in an MQTT queue: %s", future.exception())
                self._has_complained = True
                self._postpone(change)

        if self._unmade:  # so the disk is full
            self._postpone(change)
        else:
            self._changes.make(change).add_done_callback(made)

    def _postpone(self, change: Change) -> None:
        if not self._unmade:
            asyncio.get_running_loop().call_later(AGAIN_S, self._end_again)
        self._unmade.append(change)

    def _end_again(self) -> None:
        changes, self._unmade = self._unmade, []
        for change in changes if not self._has_ended else ():
            self._end_delivery(change)

    def _check(self, future: "asyncio.Future[Any]") -> bool:
        """Whether a change has been made, and the connection still is there."""
        if self._has_ended:
            return False
        if future.exception() is not None:
            self._fail()
            return False
        return True

    def _release(self, delivery: Delivery) -> None:
        number = delivery.number

        def released(future: "asyncio.Future[None]") -> None:
            if self._check(future):
                self._core.send(Pubrel(delivery.packet_id))
                self._flush()

        self._changes.make(lambda store: store.sessions.release(number)).add_done_callback(released)

    def _pump(self) -> None:
        capacity = self._window - len(self._in_flight)
        has_capacity = capacity >= max(1, self._window // 2)  # one read of the file for many deliveries
        if self._is_loading or self._has_ended or not (self._is_more and self._is_writable and has_capacity):
            return
        self._is_loading, self._is_more = True, False
        after, session = self._after, self._session

        def load(store: MqttStore) -> tuple[list[Delivery], float]:
            return store.sessions.deliveries(session, after, capacity), store.now_s

        def loaded(future: "asyncio.Future[tuple[list[Delivery], float]]") -> None:
            self._is_loading = False
            if isinstance(future.exception(), DiskFull):  # a change of the same transaction had no space
                self._is_more = True
                asyncio.get_running_loop().call_later(LOAD_AGAIN_S, self._pump)
                return
            if not self._check(future):
                return
            if not self._is_writable:
                self._is_more = True  # they are read again once the network accepts more
                return
            found, now_s = future.result()
            self._is_more = self._is_more or len(found) == capacity
            for delivery in found:
                self._send(delivery, now_s)
            self._flush()
            self._pump()

        self._changes.make(load).add_done_callback(loaded)

    def _send(self, delivery: Delivery, now_s: float) -> None:
        self._after, number = delivery.number, delivery.number
        if delivery.is_released:
            self._in_flight[delivery.packet_id] = delivery
            self._core.send(Pubrel(delivery.packet_id))
            return
        left_s = None if delivery.expires_s is None else delivery.expires_s - now_s
        if left_s is not None and left_s <= 0 and not delivery.is_repeated:
            self._end_delivery(lambda store: store.finish_expired(number))
            return
        packet = Publish(
            delivery.topic,
            delivery.payload,
            delivery.qos,
            delivery.retain,
            delivery.is_repeated,
            delivery.packet_id,
            _properties(delivery, left_s),
        )
        if not self._fits(packet):  # as if it had been sent [MQTT-3.1.2-25]
            self.dropped += 1
            self._end_delivery(lambda store: store.sessions.finish(number))
            return
        self._in_flight[delivery.packet_id] = delivery
        self.sent = max(self.sent, number)
        self._core.send(packet)

    def _fits(self, packet: Publish) -> bool:
        return self._core.fits(len(encode(packet, self._core.version or 5)))


def _ends(packet: Puback | Pubrec | Pubcomp, delivery: Delivery) -> bool:
    return delivery.qos == (1 if isinstance(packet, Puback) else 2)


def _properties(delivery: Delivery, left_s: float | None) -> Properties | None:
    found = dict(delivery.properties)
    if left_s is not None:
        found[EXPIRY] = max(0, int(left_s))
    if delivery.identifiers:
        found["subscription_identifier"] = delivery.identifiers
    return found or None
