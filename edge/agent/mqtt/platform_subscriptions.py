"""Subscribes on the platform to what local clients subscribe to, as long as one of them does (M16, M21).

The filters of all sessions are compared with those that the agent may have on the platform. A filter is on disk, as it
is there, before it is subscribed, and until it is unsubscribed: so neither a kill nor other settings leave one behind.
Retained messages that came by it end with it, as what becomes of them on the platform is not heard any more.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.store import MqttStore
from edge.agent.mqtt.topic_routes import PLATFORM
from edge.client.client import Client
from edge.client.errors import NotSupported
from edge.errors import SubscribeRefused
from mqtt.errors import LocalProtocolError, ServerLimitError
from mqtt.packets import Subscription
from schemas.identity import INBOX_MARK

QOS: Final = 2
_NOT_POSSIBLE: Final = (NotSupported, LocalProtocolError, ServerLimitError)
_SHOWN: Final = 200  # characters of a filter

_log: Final = logging.getLogger("waystation.agent")


class PlatformSubscriptions:
    """`changed` is set when subscriptions here have changed. `prefix`: what filters get in front. `echoes`: whether the
    platform sends back what this agent publishes; no if subscribers here have it already. `is_on`: if not, it only ends
    what it had subscribed before."""

    def __init__(
        self, client: Client, changes: Changes, changed: asyncio.Event, *, prefix: str, echoes: bool, is_on: bool = True
    ) -> None:
        self._client, self._changes, self._changed = client, changes, changed
        self._prefix, self._echoes, self._is_on = prefix, echoes, is_on
        self._subscribed: set[str] = set()  # in this process

    async def run(self) -> None:
        """For ever; raises the error that ended the client or the store."""
        while True:
            self._changed.clear()
            here, known = await self._changes.insist(_filters)
            wanted = self._wanted(here)
            for topic_filter in wanted - self._subscribed:
                await self._changes.insist(partial(_begin, topic_filter))
                await self._subscribe(topic_filter)
            for topic_filter in known - wanted:
                await self._unsubscribe(topic_filter)
                await self._changes.insist(partial(_end, topic_filter))
                self._subscribed.discard(topic_filter)
            await self._changed.wait()

    def _wanted(self, here: set[str]) -> set[str]:
        """Filters on the platform for those of the sessions here. None for inboxes: the agent's own is its own affair,
        and what it got of others it would take for its own."""
        found = {self._prefix + topic_filter for topic_filter in here} if self._is_on else set()
        return {topic_filter for topic_filter in found if not topic_filter.startswith(INBOX_MARK)}

    async def _subscribe(self, topic_filter: str) -> None:
        """Retained messages come if the subscription is new, and with their flag: they are kept here, too."""
        try:
            await self._client.subscribe(Subscription(topic_filter, QOS, not self._echoes, True, 1))
        except (SubscribeRefused, *_NOT_POSSIBLE) as error:
            _log.error("the platform does not let the agent subscribe to %r: %s", topic_filter[:_SHOWN], error)
        self._subscribed.add(topic_filter)

    async def _unsubscribe(self, topic_filter: str) -> None:
        try:
            await self._client.unsubscribe(topic_filter)
        except _NOT_POSSIBLE as error:  # so it was not subscribed either
            _log.warning("the agent cannot unsubscribe from %r: %s", topic_filter[:_SHOWN], error)


def _filters(store: MqttStore) -> tuple[set[str], set[str]]:
    return store.sessions.filters(), store.far_filters(PLATFORM)


def _begin(topic_filter: str, store: MqttStore) -> None:
    store.set_far_filter(PLATFORM, topic_filter, is_subscribed=True)


def _end(topic_filter: str, store: MqttStore) -> None:
    store.unsubscribed(PLATFORM, topic_filter)
