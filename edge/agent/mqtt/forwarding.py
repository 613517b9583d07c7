"""Carries messages from the spool to what brings them on: the platform, other agents, a broker (M1, M16).

What brings them on is a :class:`Transport`, with one method: a client with its outbox, or the mesh
(:class:`edge.agent.mesh.mesh_sender.MeshTransport`); the forwarder knows nothing of it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from edge.agent import way
from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.message import EXPIRY, MqttMessage
from edge.agent.mqtt.store import MqttStore, Spooled
from edge.agent.mqtt.topic_routes import PLATFORM
from edge.client.client import Client
from edge.client.errors import NotAccepted, StoreFull
from mqtt.errors import LocalProtocolError
from mqtt.packets import Properties, Publish

AT_ONCE: Final = 200
AGAIN_S: Final = 1.0
ENVELOPE_QOS: Final = 1  # the receiver recognises repetitions by their id
BROKER_QOS: Final = 2

_log: Final = logging.getLogger("waystation.agent")

Refused = dict[str, str]
"""The reason by the id of a message that will never be taken."""


class Transport(Protocol):
    """What brings messages on."""

    async def send(self, messages: list[Spooled], refused: Refused) -> int:
        """Takes messages of one spool, at least one, in order; returns how many of them, from the first, are on its
        disk, or `refused`. It recognises by its number one that it has taken before, also in an earlier process."""
        ...

    async def position(self, spool: int) -> int:
        """The number of the newest message that it has taken from the file of this incarnation; 0: none."""
        ...


class Forwarder:
    """`news` is set when there is something new in the spool."""

    def __init__(self, lane: str, changes: Changes, transport: Transport, news: asyncio.Event) -> None:
        self._lane, self._changes, self._transport, self._news = lane, changes, transport, news

    async def run(self) -> None:
        """For ever; raises the error that ended the transport or the store."""
        lane, after, has_complained = self._lane, 0, False
        spool = await self._changes.insist(_incarnation)
        await self._changes.insist(partial(_renew_if_behind, spool, await self._transport.position(spool)))
        while True:
            self._news.clear()
            found = await self._changes.insist(partial(_spooled, lane, after))
            if not found:
                await self._news.wait()
                continue
            steps: list[tuple[str, str, str]] = []
            due = [one for one in found if one.message.lifetime_s != 0]
            steps += [(one.message.id, way.EXPIRED, "") for one in found if one.message.lifetime_s == 0]
            refused: Refused = {}
            taken = await self._transport.send(due, refused) if due else 0
            steps += [(identifier, way.REFUSED, reason) for identifier, reason in refused.items()]
            for identifier, reason in refused.items():
                _log.error("the message %s is refused: %s", identifier, reason)
            is_all = taken == len(due)
            last = found[-1].number if is_all else due[taken].number - 1
            if last > after:
                await self._changes.insist(partial(_forwarded, lane, last, steps))
                after = last
            if not is_all:
                if not has_complained:
                    _log.warning("messages of MQTT clients wait: the outbox is full")
                await asyncio.sleep(AGAIN_S)
            has_complained = not is_all


def _incarnation(store: MqttStore) -> int:
    return store.incarnation


def _renew_if_behind(spool: int, position: int, store: MqttStore) -> None:
    """A file that has never given the number up to which its messages were taken was put back from a backup. What it
    holds goes on, some of it once more; else what it gives the same numbers to would count as taken."""
    if spool == store.incarnation and position > store.last_spooled:
        _log.warning("the file of MQTT messages is an earlier copy; what it has may have been sent, and is sent again")
        store.renew()


def _spooled(lane: str, after: int, store: MqttStore) -> list[Spooled]:
    return store.spooled(lane, after, AT_ONCE)


def _forwarded(lane: str, last: int, steps: list[tuple[str, str, str]], store: MqttStore) -> None:
    store.forwarded(lane, last, steps)


class ClientTransport:
    """A client with its outbox. `packet_of` makes the PUBLISH; `lifetime_s`: how long the outbox keeps messages."""

    def __init__(
        self, client: Client, store: ExactStore, packet_of: Callable[[Spooled], Publish], lifetime_s: float
    ) -> None:
        self._client, self._store, self._packet_of, self._lifetime_s = client, store, packet_of, lifetime_s
        self._position: int | None = None

    async def send(self, messages: list[Spooled], refused: Refused) -> int:
        if self._position is None:
            self._position = await self.position(messages[0].spool)
        position = self._position
        known = sum(one.number <= position for one in messages)
        is_full = False

        async def put(one: Spooled) -> bool:
            nonlocal is_full
            if is_full:  # in order, and the position passes none that is not taken
                return False
            sequences: list[int] = []

            def stored(sequence: int) -> None:
                sequences.append(sequence)
                self._store.moves(sequence, one.spool, one.number, one.message.id)

            left_s = one.message.lifetime_s
            lifetime_s = None if left_s is None else min(float(left_s), self._lifetime_s)
            try:
                await self._client.put(self._packet_of(one), lifetime_s, stored)
            except StoreFull:
                is_full = True
                for sequence in sequences:
                    self._store.unmoved(sequence)
                return False
            except (NotAccepted, LocalProtocolError) as error:
                refused[one.message.id] = str(error)
            return True

        # All in one turn of the loop, so in one transaction: if the disk is full, none of them is taken.
        results = await asyncio.gather(*(put(one) for one in messages[known:]))
        return known + (results.index(False) if False in results else len(results))

    async def position(self, spool: int) -> int:
        position: int = await self._client.on_store(lambda _: self._store.position(spool))
        return position


def to_platform(one: Spooled, prefix: str) -> Publish:
    """The message as it is, or in an envelope for an agent."""
    message = one.message
    if one.target == PLATFORM:
        properties = _with_expiry(message.properties, message)
        return Publish(prefix + message.topic, message.payload, message.qos, message.retain, properties=properties)
    kept: Properties = {name: message.properties[name] for name in _NATIVE if name in message.properties}
    properties = _with_expiry({**kept, "user_property": message.envelope()}, message)
    return Publish(one.target, message.payload, ENVELOPE_QOS, properties=properties)


def to_broker(one: Spooled) -> Publish:
    """The message as it was at its originator; at QoS 2, so it gets there once."""
    message = one.message
    properties = _with_expiry(message.properties, message)
    return Publish(message.topic, message.payload, BROKER_QOS, message.retain, properties=properties)


_NATIVE: Final = ("content_type", "response_topic", "correlation_data")


def _with_expiry(properties: Properties, message: MqttMessage) -> Properties | None:
    if message.lifetime_s is None:
        return properties or None
    return {**properties, EXPIRY: message.lifetime_s}
