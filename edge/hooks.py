"""What :class:`edge.mqtt_client.MqttClient` reports."""

from collections.abc import Callable
from dataclasses import dataclass

from edge.errors import ReceivedTooLarge
from mqtt.client_events import Closed, Published, SessionLost
from mqtt.packets import Connack, Packet


@dataclass(frozen=True)
class Hooks:
    """Optional callbacks, called on the event loop; each must return soon.

    `observe`: each packet received, before it is handled. `on_connected`: the server has accepted the connection.
    `on_session_lost`: what was lost; the client is already subscribing again. `on_published`: the exchange of a message
    of QoS 1 or 2 has ended. `on_closed`: a connection has ended. `on_not_subscribed`: the server has lost the session,
    and does not grant some subscriptions again; without it, the client ends with that error. `on_too_large`: a server
    of 3.1.1 has sent a message above `max_packet_size`, which is lost; without it, the client ends with that error.
    `on_writable`: with False when much is written that the network has not accepted yet, then with True when it accepts
    more. A new connection is writable.
    """

    observe: Callable[[Packet], None] | None = None
    on_connected: Callable[[Connack], None] | None = None
    on_session_lost: Callable[[SessionLost], None] | None = None
    on_published: Callable[[Published], None] | None = None
    on_closed: Callable[[Closed], None] | None = None
    on_not_subscribed: Callable[[Exception], None] | None = None
    on_too_large: Callable[[ReceivedTooLarge], None] | None = None
    on_writable: Callable[[bool], None] | None = None
