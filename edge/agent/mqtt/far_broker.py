"""The agent as a client of a stock broker: what other agents have sent is published there, and back (M16, M21).

A client of its own, with an outbox of its own (`broker` in the store's directory), at QoS 2 in both directions.
"""

import logging
from functools import partial
from typing import Final

from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.settings import BrokerSettings
from edge.agent.mqtt.store import MqttStore
from edge.agent.mqtt.topic_routes import TopicRoutes
from edge.client.client import Client
from edge.client.options import ClientOptions
from edge.errors import SubscribeRefused
from mqtt.packets import Subscription

QOS: Final = 2
LANE: Final = "broker"

_log: Final = logging.getLogger("waystation.agent")


def broker_options(settings: BrokerSettings, agent: str) -> ClientOptions:
    """How to connect, without files: those are the caller's."""
    return {
        "client_id": broker_client_id(settings, agent),
        "connect_points": [settings.connect_point],
        "username": settings.username or None,
        "server_hostname": settings.server_name or None,
    }


def broker_client_id(settings: BrokerSettings, agent: str) -> str:
    """The agent's client id at the broker."""
    return settings.client_id or f"{agent}-agent"


def way_back(settings: BrokerSettings) -> TopicRoutes:
    """Which agent gets what the broker sends."""
    return TopicRoutes(settings.subscriptions)


async def stay_subscribed(client: Client, changes: Changes, settings: BrokerSettings) -> None:
    """Raises the error that ended the client or the store. `no_local`: what this agent has published is not sent back.
    A filter is on disk before it is subscribed: one that has left the settings is unsubscribed, as the session at the
    broker lasts longer than the process."""
    known = await changes.insist(lambda store: store.far_filters(LANE))
    for topic_filter in settings.subscriptions:
        await changes.insist(partial(_set, topic_filter, True))
        try:
            await client.subscribe(Subscription(topic_filter, QOS, True, True, 1))
        except SubscribeRefused as error:
            _log.error("the broker does not let the agent subscribe to %r: %s", topic_filter, error)
    for topic_filter in known - settings.subscriptions.keys():
        await client.unsubscribe(topic_filter)
        await changes.insist(partial(_set, topic_filter, False))
    await client.ended()


def _set(topic_filter: str, is_subscribed: bool, store: MqttStore) -> None:
    store.set_far_filter(LANE, topic_filter, is_subscribed=is_subscribed)
