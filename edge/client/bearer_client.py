"""What the client library needs of a bearer: the connection, and the exchange of messages over it (G11, G13).

MQTT over its transports (:mod:`edge.client.mqtt_bearer`), HTTP (:mod:`edge.client.http_bearer`) and Kafka
(:mod:`edge.client.kafka_bearer`) implement it. A message that may have been sent has a number in the outbox, the
*packet id* (1 to 65,535), whatever the bearer: a bearer that was killed sends those messages again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edge.client.connect_points import ConnectPoint
from edge.client.in_flight import InFlightMessages
from edge.client.message import IncomingMessage
from edge.client.store import StoredMessage
from mqtt.client_events import Closed, Published
from mqtt.codes import ReasonCode
from mqtt.packets import Properties, Publish, Subscription


@dataclass(frozen=True)
class BearerHooks:
    """Called on the event loop. `on_published`: the exchange of a message has ended. `on_capacity`: without that, more
    can be sent again. `on_closed`: an accepted connection, or one that was about to be, has ended."""

    on_connected: Callable[[], None]
    on_published: Callable[[Published], None]
    on_capacity: Callable[[], None]
    on_closed: Callable[[], None]
    on_message: Callable[[IncomingMessage], None]


class BearerClient(Protocol):
    """One client over any number of connections, one at a time; used on one event loop."""

    @property
    def in_flight(self) -> InFlightMessages:
        """The messages that have a packet id."""

    # -- connections ---------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the other side has accepted a connection and it has not ended."""

    @property
    def connections(self) -> int:
        """How many connections there have been."""

    async def connect(self, point: ConnectPoint) -> None:
        """Connects, and sends again what may have been sent. Raises Unreachable, ConnectRefused, ConnectionLost."""

    async def wait_closed(self) -> Closed:
        """Waits for the connection to end; returns how it ended."""

    async def disconnect(self, *, ends_session: bool) -> None:
        """Ends the connection in order. `ends_session`: nobody will resume it."""

    def abort(self) -> None:
        """Breaks the connection at once."""

    def fail(self, error: Exception) -> None:
        """Ends the connection for good: callers that wait for an answer get `error`."""

    async def network_changed(self) -> None:
        """The device has another network."""

    # -- messages to send ----------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many messages are here: sent and not acknowledged, or about to be sent."""

    def has_capacity(self, payload_bytes: int) -> bool:
        """Whether another message can be sent."""

    def check(self, packet: Publish) -> None:
        """Raises LocalProtocolError if the bearer can never carry the message."""

    def send(self, message: StoredMessage, properties: Properties | None) -> int:
        """Takes a message that waits; returns its packet id, with which `on_published` is called, or 0 if it is sent
        and nothing more will be heard of it. Nothing of it may be written before its packet id is durable.

        Raises QueueFullError or MqttClientError if it cannot be sent now, another ProtocolError if it never can be."""

    def may_be_sent(self, packet_id: int) -> bool:
        """Whether a connection may have sent it."""

    def remove(self, packet_id: int) -> None:
        """Forgets a message that no connection has sent."""

    # -- messages to receive -------------------------------------------------------------------------------------------

    def pause_reading(self, is_paused: bool) -> None:
        """The application has too many messages, or few enough again. A new connection reads."""

    async def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        """As :meth:`edge.client.client.Client.subscribe`. Raises NotSupported if the bearer cannot."""

    async def unsubscribe(self, *filters: str) -> None:
        """As :meth:`edge.client.client.Client.unsubscribe`."""

    async def open_inbox(self) -> str:
        """Returns the client's inbox once its messages arrive here. Raises NotSupported if the bearer has none."""
