"""What programs hand in, on its way into the mesh: mail, files, and messages of MQTT clients (M1, M2, M17).

What goes to an agent is an *envelope*: sealed to that agent, which alone can open it. What goes to a topic, or to the
inbox of a plain client, is a *message*: sealed to the platform, which delivers it like any other.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from bundles.bundle import Header, Kind
from bundles.content import PROPERTIES_MAX, Content
from bundles.errors import FormatError
from edge.agent import way
from edge.agent.envelope import id_of
from edge.agent.mesh.mesh_log import MeshLog, Origin
from edge.agent.mqtt.forwarding import Refused
from edge.agent.mqtt.message import EXPIRY
from edge.agent.mqtt.store import Spooled
from edge.agent.mqtt.topic_routes import PLATFORM
from edge.agent.sender import QOS
from edge.client.errors import MessageTooLarge, NotAccepted, StoreFull
from edge.node.bundle_store import BundleStore
from edge.node.node import MeshNode
from mqtt.packets import Properties, Publish
from schemas.identity import INBOX_MARK

EXPIRES: Final = "expires"
"""User property of an envelope whose message has a lifetime of its own: it is what is left of the bundle's."""


class MeshSender:
    """A :class:`edge.agent.sender.Sender`. `lifetime_s`: the longest, and that of a message without one of its own."""

    def __init__(self, node: MeshNode, log: MeshLog, lifetime_s: int) -> None:
        self._node, self._log, self._lifetime_s = node, log, lifetime_s

    async def send(
        self, destination: str, payload: bytes, content_type: str, properties: Sequence[tuple[str, str]]
    ) -> None:
        found = list(properties)
        kind = dict(found).get("kind", "")
        origin = Origin(id_of(found) or "-", kind, way.ACCEPTED, found, payload if kind == "mail" else None)
        bundle_kind = Kind.ENVELOPE if destination.startswith(INBOX_MARK) else Kind.MESSAGE
        await self.submit(bundle_kind, destination, Content(payload, content_type, found), None, origin)

    async def submit(
        self, kind: Kind, destination: str, content: Content, lifetime_s: int | None, origin: Origin
    ) -> None:
        """Returns once the message is on disk. Raises NotAccepted, StoreError."""
        if len(content.user_properties) > PROPERTIES_MAX:
            count = len(content.user_properties)
            raise MessageTooLarge(f"the message has {count:,} user properties, and {PROPERTIES_MAX:,} are allowed")
        lifetime_s = self._lifetime_s if lifetime_s is None else min(lifetime_s, self._lifetime_s)
        try:
            await self._node.submit(
                kind, destination, content, lifetime_s, lambda bundle: self._log.begins(bundle, origin)
            )
        except FormatError as error:
            raise NotAccepted(f"the message does not fit into a bundle: {error}") from error


class MeshTransport:
    """A :class:`edge.agent.mqtt.forwarding.Transport`: from the stand-in's spool into the mesh. `prefix`: what topics
    get in front on the platform."""

    def __init__(self, node: MeshNode, log: MeshLog, sender: MeshSender, lane: str, prefix: str) -> None:
        self._node, self._log, self._sender, self._lane, self._prefix = node, log, sender, lane, prefix
        self._position: int | None = None

    async def send(self, messages: list[Spooled], refused: Refused) -> int:
        if self._position is None:
            self._position = await self.position(messages[0].spool)
        known = sum(one.number <= self._position for one in messages)
        is_full = False

        async def put(one: Spooled) -> bool:
            nonlocal is_full
            if is_full:  # in order, and the position passes none that is not taken
                return False
            try:
                await self._put(one)
            except StoreFull:
                is_full = True
                return False
            except NotAccepted as error:
                refused[one.message.id] = str(error)
            return True

        # All in one turn of the loop, so in one commit: if the disk is full, none of them is taken.
        results = await asyncio.gather(*(put(one) for one in messages[known:]))
        return known + (results.index(False) if False in results else len(results))

    async def position(self, spool: int) -> int:
        return await self._node.on_store(partial(self._read_position, spool))

    async def _put(self, one: Spooled) -> None:
        message, found = one.message, one.message.properties
        origin = Origin(message.id, "mesh", way.HANDED_OVER, [], None, self._lane, one.spool, one.number)
        if one.target == PLATFORM:
            kind, destination = Kind.MESSAGE, self._prefix + message.topic
            properties, retain = list(found.get("user_property", ())), message.retain
        else:
            kind, destination, retain = Kind.ENVELOPE, one.target, False
            properties = message.envelope() + ([] if message.lifetime_s is None else [(EXPIRES, "1")])
        content = Content(
            message.payload,
            found.get("content_type", ""),
            properties,
            retain,
            found.get("response_topic", ""),
            found.get("correlation_data", b""),
        )
        await self._sender.submit(kind, destination, content, message.lifetime_s, origin)

    def _read_position(self, spool: int, store: BundleStore) -> int:
        with store.transaction() as db:
            return self._log.position(db, self._lane, spool)


def publish_of(header: Header, content: Content) -> Publish:
    """What came in an envelope, as the message that it would be in the agent's inbox on the platform."""
    properties: Properties = {"user_property": content.user_properties}
    if content.content_type:
        properties["content_type"] = content.content_type
    if content.response_topic:
        properties["response_topic"] = content.response_topic
    if content.correlation_data:
        properties["correlation_data"] = content.correlation_data
    if (EXPIRES, "1") in content.user_properties:
        properties[EXPIRY] = header.lifetime_s
    return Publish(header.destination, content.payload, QOS, properties=properties)
