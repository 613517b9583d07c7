"""Kafka as a bearer of the client library, for programs in the data centre (G11): publishes, and receives nothing.

Messages go to `ingress` as gateways write them (:mod:`edge.client.kafka_record`), acknowledged when all replicas in
sync have them. There is no gateway, so no session: no subscriptions, no inbox, no requests, no retained messages, no
presence, and none of a gateway's rules. Who may write to `ingress` is trusted, and is decided by Kafka's access rules.

Delivery is at least once. A message whose report was lost with the process or the connection is written again, with the
same id. Kafka itself keeps copies away only within one connection.
"""

import asyncio
import time

from edge.client.bearer_client import BearerHooks
from edge.client.connect_points import ConnectPoint
from edge.client.errors import MissingPackage, NotSupported
from edge.client.in_flight import InFlightMessages
from edge.client.kafka_options import KafkaOptions
from edge.client.kafka_record import IngressRecord, check_record, ingress_record
from edge.client.limits import Limits
from edge.client.one_connection import OneConnection
from edge.client.options import EXPIRY, Options
from edge.client.outbox import Outbox
from edge.client.sending_window import SendingWindow
from edge.client.store import Recovered, StoredMessage
from edge.client.take_over import take_over
from mqtt.client_events import Closed, EndedBy, Published
from mqtt.client_publish import check_publish
from mqtt.codes import ReasonCode
from mqtt.packets import Properties, Publish, Subscription

try:
    from edge.client.kafka_producer import KafkaProducer, Report, describe, is_too_large
except ModuleNotFoundError as error:
    if error.name != "kafka":
        raise
    raise MissingPackage(
        "connect points kafka://… need the package kafka-python: pip install 'waystation-edge[kafka]'"
    ) from error

_PUBLISHES_ONLY = (
    "over kafka a client publishes only: to receive, use another client with connect points mqtts:// or https://"
)


class KafkaBearer(OneConnection):
    """Implements :class:`edge.client.bearer_client.BearerClient`."""

    def __init__(self, options: Options, limits: Limits, outbox: Outbox, found: Recovered, hooks: BearerHooks) -> None:
        super().__init__(hooks)
        self._client_id, self._outbox = options.client_id, outbox
        found = take_over(outbox, found)
        self.in_flight = InFlightMessages(outbox, found)
        self._window = SendingWindow(limits, found.session.last_packet_id, found.open_ids)
        self._window.restore(found.in_flight)
        self._producer = KafkaProducer(
            options.kafka or KafkaOptions(), limits.connect_timeout_s, limits.answer_timeout_s
        )
        self._partitions = 0
        self._unsent: list[int] = []  # packet ids, on this connection
        self._sending: asyncio.Task[None] | None = None
        self.connections = 0

    # -- connections ---------------------------------------------------------------------------------------------------

    async def connect(self, point: ConnectPoint) -> None:
        self.connections += 1
        if self._sending is not None:
            await asyncio.wait([self._sending])
        self._partitions = await self._producer.open(point, self._reported)
        self._opened()
        self._unsent = self._window.in_order()
        self._sending = asyncio.create_task(self._send_all())
        self._hooks.on_connected()
        self._changes.wake()

    async def disconnect(self, *, ends_session: bool) -> None:
        self._lost(Closed(ReasonCode.NORMAL_DISCONNECTION, "the client has disconnected", EndedBy.CLIENT))
        if self._sending is not None:
            await asyncio.wait([self._sending])
        await self._producer.close()
        self._producer.stop()

    def fail(self, error: Exception) -> None:
        self.abort()

    async def network_changed(self) -> None:
        """Nothing to do: kafka-python connects again by itself."""

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self._window)

    def has_capacity(self, payload_bytes: int) -> bool:
        return self._window.has_capacity(payload_bytes)

    def check(self, packet: Publish) -> None:
        check_publish(packet)
        check_record(packet)

    def send(self, message: StoredMessage, properties: Properties | None) -> int:
        """`properties` are those of the message, whose lifetime is computed anew whenever it is written."""
        check_record(Publish(message.topic, b"", retain=message.retain))  # another bearer may have taken it
        packet_id = self._window.add(message)
        self._unsent.append(packet_id)
        self._changes.wake()
        return packet_id

    def may_be_sent(self, packet_id: int) -> bool:
        return self._window.may_be_sent(packet_id)

    def remove(self, packet_id: int) -> None:
        self._window.remove(packet_id)

    def pause_reading(self, is_paused: bool) -> None:
        """Nothing to do: nothing is received."""

    async def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        raise NotSupported(_PUBLISHES_ONLY)

    async def unsubscribe(self, *filters: str) -> None:
        raise NotSupported(_PUBLISHES_ONLY)

    async def open_inbox(self) -> str:
        raise NotSupported(_PUBLISHES_ONLY)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        """Until the connection ends: writes what is unsent, all of it at a time."""
        try:
            while True:
                await self._changes.until(lambda: bool(self._unsent) or self._closed is not None)
                if self._closed is not None:
                    return
                unsent, self._unsent = self._unsent, []
                await self._outbox.durable()  # their packet ids are on disk before they are sent
                if self._closed is None:
                    await self._producer.send([(one, self._record(one)) for one in unsent if one in self._window])
        except Exception as error:
            self._lost_by(error)

    def _record(self, packet_id: int) -> IngressRecord:
        message = self._window.sent(packet_id)
        remaining_s = message.expires_s - self._outbox.now_s if EXPIRY in (message.properties or {}) else None
        return ingress_record(message, self._client_id, self._partitions, time.time(), remaining_s)

    def _reported(self, reports: list[Report]) -> None:
        for packet_id, error, _ in reports:
            if self._closed is not None or packet_id not in self._window:
                return
            if error is not None and not is_too_large(error):
                self._lost_by(error)
                return
            self._window.remove(packet_id)
            if error is None:
                self._hooks.on_published(Published(packet_id))
            else:
                text = {"reason_string": f"Kafka does not take a record of this size ({describe(error)})"}
                self._hooks.on_published(Published(packet_id, ReasonCode.PACKET_TOO_LARGE, text))

    def _lost_by(self, error: Exception) -> None:
        self._lost(Closed(ReasonCode.UNSPECIFIED_ERROR, describe(error), EndedBy.TRANSPORT))
