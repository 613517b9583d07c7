"""The parts of the MQTT stand-in, wired; what the agent knows of it (M16, M21)."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from edge.agent.dsn import Failure
from edge.agent.envelope import Mail
from edge.agent.errors import ControlError
from edge.agent.failures import Failures, OutboxFailures
from edge.agent.mqtt.arrivals import Arrivals
from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.far_broker import LANE, broker_client_id, broker_options, stay_subscribed, way_back
from edge.agent.mqtt.forwarding import ClientTransport, Forwarder, Transport, to_broker
from edge.agent.mqtt.hub import ONWARD, Hub
from edge.agent.mqtt.left_for_broker import LeftForBroker
from edge.agent.mqtt.listener import Listener
from edge.agent.mqtt.message import MqttMessage, is_mqtt, unpacked
from edge.agent.mqtt.platform_subscriptions import PlatformSubscriptions
from edge.agent.mqtt.sessions import SessionLimits
from edge.agent.mqtt.settings import STORE_FILE
from edge.agent.mqtt.store import EVERY, MqttStore, StoreLimits, Taken
from edge.agent.mqtt.topic_routes import TopicRoutes
from edge.agent.settings import AgentSettings, client_tls, limits
from edge.agent.way import Step
from edge.client.client import Client
from edge.client.message import IncomingMessage, Message
from edge.link import QuicTls
from edge.reconnect import FullJitter
from schemas.identity import INBOX_MARK
from schemas.settings_files import secret_if_set
from schemas.visible import visible

EXPIRE_S: Final = 5.0
PLATFORM_SOURCE: Final = "platform"
BROKER_SOURCE: Final = "broker"
BROKER_FILE: Final = "broker"

_log: Final = logging.getLogger("waystation.agent")


class Standin:
    """An asynchronous context manager, inside which `parts` run. With `[mqtt]` off they send on what clients here had
    handed in before. `client` and `store`: of the platform, if the agent is connected to it; the client is open.
    `onward`: what brings messages on. Entering raises StoreError, SettingsError, ListenerError."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client | None,
        store: ExactStore | None,
        onward: Transport,
        *,
        backoff: FullJitter | None,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
    ) -> None:
        self._settings, self._mqtt, self._client, self._store = settings, settings.mqtt, client, store
        self._onward = onward
        self._arrivals: Arrivals | None = None
        self._backoff, self._wall_s, self._running_s = backoff, wall_s, running_s
        self._directory = Path(settings.store.directory)
        self._broker: Client | None = None
        self._left: LeftForBroker | None = None
        self._listener: Listener | None = None
        self._broker_news = asyncio.Event()
        self.port = 0

    async def __aenter__(self) -> "Standin":
        async with contextlib.AsyncExitStack() as stack:
            self._changes = Changes(self._open_store)
            await self._changes.open()
            stack.push_async_callback(self._changes.close)
            if not self._mqtt.is_on:
                messages, _ = await self._changes.make(lambda store: store.waiting(ONWARD, EVERY))
                _log.info("[mqtt] is off; messages that clients had handed in before are sent on: %d", messages)
            listener = self._mqtt.listener
            self._hub = Hub(listener, TopicRoutes(self._mqtt.routes), self._changes)
            if self._client is not None and self._store is not None:
                self._arrivals = Arrivals(
                    PLATFORM_SOURCE,
                    self._client,
                    self._store,
                    self._changes,
                    self._take_from_platform,
                    self._hub.distribute,
                )
            if self._mqtt.broker.enabled:
                self._broker = await stack.enter_async_context(self._make_broker())
                back = way_back(self._mqtt.broker)
                self._broker_arrivals = Arrivals(
                    BROKER_SOURCE,
                    self._broker,
                    self._broker_store,
                    self._changes,
                    partial(_take_from_broker, back),
                    lambda _: self._hub.news.set(),
                )
            else:
                self._left = LeftForBroker(self._directory / BROKER_FILE, self._open_broker_store, self._changes)
                await self._left.count()
            if listener.enabled:
                self._listener = Listener(listener, self._hub)
                self.port = await self._listener.open()
                stack.push_async_callback(self._listener.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """To be run while it is open; each runs for ever, or raises the error that ended it."""
        listener, broker = self._mqtt.listener, self._mqtt.broker
        found = [Forwarder(ONWARD, self._changes, self._onward, self._hub.news).run(), self._expire()]
        if self._arrivals is not None:
            found.append(self._arrivals.run())
        if self._client is not None:
            subscriptions = PlatformSubscriptions(
                self._client,
                self._changes,
                self._hub.filters_changed,
                prefix=listener.platform_prefix,
                echoes=not listener.local_delivery,
                is_on=listener.enabled and listener.platform_subscriptions,
            )
            found.append(subscriptions.run())
        if self._broker is not None:
            there = ClientTransport(self._broker, self._broker_store, to_broker, self._settings.store.lifetime_s)
            found += [
                Forwarder(LANE, self._changes, there, self._broker_news).run(),
                stay_subscribed(self._broker, self._changes, broker),
                self._receive_from_broker(self._broker),
                self._broker_arrivals.run(),
                Failures(OutboxFailures(self._broker, self._broker_store), _nobody).run(),
            ]
        return found

    # -- the agent's part ----------------------------------------------------------------------------------------------

    async def take(self, message: IncomingMessage) -> bool:
        """Takes a message from the platform; False if it is for another part of the agent. Acknowledge it when this has
        returned, in the same turn. Raises EnvelopeError, StoreFull, StoreError."""
        assert self._store is not None
        assert self._arrivals is not None
        if is_mqtt(message.user_properties) and message.topic.startswith(INBOX_MARK):
            self._store.arrives(message.packet_id, None)
            await self.take_from_agent(unpacked(message))
            return True
        if self._listener is not None and not message.topic.startswith(INBOX_MARK):
            await self._arrivals.arrived(message)
            return True
        self._store.arrives(message.packet_id, None)
        return False

    async def take_from_agent(self, message: MqttMessage) -> None:
        """Returns once a message of another agent is on disk, for clients here and for the broker. A repetition is
        recognised by its id, whatever way it has come. Raises StoreFull, StoreError."""
        spool, is_local = ((LANE, ""),) if self._broker is not None else (), self._listener is not None
        taken = await self._changes.make(
            lambda store: store.take(message, recognise=True, spool=spool, is_local=is_local)
        )
        self._hub.distribute(taken)
        self._broker_news.set()

    async def status(self) -> dict[str, Any]:
        """For people: one table for the listener and the store, one for the broker."""
        counts = await self._changes.make(MqttStore.status)
        if self._listener is not None:
            counts["address"] = f"{self._mqtt.listener.host}:{self.port}"
            counts["connections"] = self._listener.connections
            counts["dropped_at_qos_0"] += self._hub.dropped
        found = {"mqtt": counts}
        if self._broker is not None:
            last = self._broker.last_error
            is_away = not self._broker.is_connected
            messages, size = self._broker.usage
            found["broker"] = {
                "connected": not is_away,
                "problem": " ".join(str(last).split()) if last is not None and is_away else "",
                "messages": messages,
                "bytes": size,
            }
        elif self._left is not None and self._left.messages:
            left = self._left
            found["broker"] = {"problem": "mqtt.broker is off", "messages": left.messages, "bytes": left.size}
        return found

    async def discard_for_broker(self) -> int:
        """Removes what waits for a broker that is off; how many messages. Raises StoreError, ControlError if it is
        on."""
        if self._left is None:
            raise ControlError("mqtt.broker is on, and gets what waits for it: turn it off first")
        return await self._left.discard()

    async def steps(self, method: str, argument: Any) -> list[Step]:
        """Of the log of ways: `newest` or `steps_of`."""
        found: list[Step] = await self._changes.make(lambda store: getattr(store, method)(argument))
        if self._broker is not None:
            found = found + await self._broker.on_store(lambda store: getattr(store, method)(argument))
        return found

    async def step_counts(self) -> dict[tuple[str, str], int]:
        """See :attr:`edge.agent.way.WayLog.counts`."""
        found: Counter[tuple[str, str]] = Counter(await self._changes.make(lambda store: dict(store.log.counts)))
        if self._broker is not None:
            # The type of `store` is that of any client's; this one's has a log.
            found.update(await self._broker.on_store(lambda store: dict(getattr(store, "step_counts", {}))))
        return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open_store(self) -> MqttStore:
        mqtt, listener = self._mqtt, self._mqtt.listener
        return MqttStore(
            self._directory / STORE_FILE,
            sessions=SessionLimits(
                listener.sessions, listener.subscriptions, listener.queue_messages, listener.queue_bytes
            ),
            limits=StoreLimits(
                mqtt.messages, mqtt.total_bytes, listener.retained_messages, listener.retained_bytes, mqtt.remembered
            ),
            window=listener.inflight,
            log_entries=self._settings.store.log_entries,
            wall_s=self._wall_s,
            running_s=self._running_s,
            down_most_s=self._settings.store.down_most_s,
        )

    def _make_broker(self) -> Client:
        broker = self._mqtt.broker
        options = broker_options(broker, self._settings.client_id)
        options["tls"] = client_tls("mqtt.broker", broker.ca_file, broker.certificate_file, broker.key_file)
        options["quic"] = QuicTls(broker.ca_file or None, broker.certificate_file or None, broker.key_file or None)
        password = secret_if_set("mqtt.broker.password_file", broker.password_file)
        if password is not None:
            options["password"] = password.encode()
        if self._backoff is not None:
            options["backoff"] = self._backoff
        return Client(
            store=self._open_broker_store,
            limits=limits(self._settings, broker.window_messages),
            on_failed=self._on_failed,
            wall_s=self._wall_s,
            running_s=self._running_s,
            **options,
        )

    def _open_broker_store(self) -> ExactStore:
        name = broker_client_id(self._mqtt.broker, self._settings.client_id)
        self._broker_store = ExactStore(self._directory / BROKER_FILE, name, self._settings.store.log_entries)
        self._broker_store.part = LANE
        return self._broker_store

    def _on_failed(self, message: Message, error: Exception) -> None:
        _log.error("the broker has not got a message to %s: %s", visible(message.topic), error)
        self._broker_store.fails(message.sequence, message.state.value, str(error))

    async def _receive_from_broker(self, broker: Client) -> None:
        async for message in broker.messages():
            await self._broker_arrivals.arrived(message)
            message.acknowledge()

    def _take_from_platform(self, store: MqttStore, message: MqttMessage) -> Taken:
        prefix = self._mqtt.listener.platform_prefix
        if not message.topic.startswith(prefix) or message.topic == prefix:  # of a subscription of other settings
            store.refused(message.id, f"its topic {message.topic} is not below mqtt.listener.platform_prefix")
            return Taken(is_new=True, queued=[], live=[])
        return store.take(replace(message, topic=message.topic[len(prefix) :]), platform_topic=message.topic)

    async def _expire(self) -> None:
        while True:
            for client_id, waiting in await self._changes.insist(MqttStore.expire):
                text = "the session of the MQTT client %s has ended, and %d messages with it"
                _log.log(logging.WARNING if waiting else logging.INFO, text, visible(client_id), waiting)
                self._hub.filters_changed.set()
            await asyncio.sleep(EXPIRE_S)


def _take_from_broker(back: TopicRoutes, store: MqttStore, message: MqttMessage) -> Taken:
    target = back.of(message.topic)
    if target is None:  # a filter that the settings had before
        store.refused(message.id, f"mqtt.broker.subscriptions has no filter for {message.topic}")
        return Taken(is_new=True, queued=[], live=[])
    return store.take(message, spool=((ONWARD, target),), is_local=False)


async def _nobody(mail: Mail, failures: list[Failure]) -> str:
    return "nobody: a broker has no mail"
