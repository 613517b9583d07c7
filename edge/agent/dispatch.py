"""What comes for the agent: each message goes to the relay, the folder or MQTT clients (M1, M21).

It comes from the platform, and is acknowledged there once it is on disk; or from the mesh. If it does not fit it waits
where it is, and those behind it with it. What no part takes is refused, and the log says why: it would come again for
ever. A bundle that comes from the platform goes to the mesh's node, which hands out what is in it.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from edge.agent.envelope import Mail, id_of, read
from edge.agent.errors import EnvelopeError
from edge.agent.inbox_folder import InboxFolder
from edge.agent.insisting import insist
from edge.agent.mqtt.message import is_mqtt, unpacked
from edge.agent.relay import Relay
from edge.client.client import Client
from edge.client.errors import DiskFull, StoreFailed, StoreFull
from edge.client.message import IncomingMessage
from schemas.mesh_api import BUNDLE_TYPE

if TYPE_CHECKING:
    from edge.agent.mesh.member import Member
    from edge.agent.mqtt.standin import Standin

AGAIN_S: Final = 5.0
UNKNOWN: Final = "-"

_log: Final = logging.getLogger("waystation.agent")


class Dispatch:
    """`relay`, `standin`: None if they are off. `on_thread`: see :class:`edge.agent.relay.Relay`."""

    def __init__(
        self,
        relay: Relay | None,
        inbox: InboxFolder,
        on_thread: Callable[..., Awaitable[Any]],
        standin: "Standin | None" = None,
    ) -> None:
        self._relay, self._inbox, self._on_thread = relay, inbox, on_thread
        self._standin = standin

    async def receive(self, client: Client, member: "Member | None") -> None:
        """Takes what the platform sends, for ever; raises the error that ended the client."""
        async for message in client.messages():
            await self._insist(message, lambda one: self._from_platform(one, member))
            message.acknowledge()

    async def take(self, message: IncomingMessage) -> None:
        """Takes an envelope that came over the mesh; returns once it is on disk, or refused."""
        await self._insist(message, self._from_mesh)

    async def _insist(self, message: IncomingMessage, attempt: Callable[[IncomingMessage], Awaitable[None]]) -> None:
        async def take() -> None:
            try:
                await attempt(message)
            except EnvelopeError as error:
                await self._refuse(id_of(message.user_properties) or UNKNOWN, str(error))

        errors = StoreFull, DiskFull, StoreFailed
        await insist(take, *errors, waits="a message waits to be taken", pause_s=AGAIN_S)

    async def _from_platform(self, message: IncomingMessage, member: "Member | None") -> None:
        if member is not None and message.content_type == BUNDLE_TYPE:
            await member.bundle_arrived(message)
        elif self._standin is None or not await self._standin.take(message):
            await self._mail_or_file(message)

    async def _from_mesh(self, message: IncomingMessage) -> None:
        if self._standin is not None and is_mqtt(message.user_properties):
            await self._standin.take_from_agent(unpacked(message))
        else:
            await self._mail_or_file(message)

    async def _mail_or_file(self, message: IncomingMessage) -> None:
        found = read(message.user_properties, message.payload)
        if isinstance(found, Mail):
            if self._relay is None:
                await self._refuse(found.id, "smtp.relay is off")
            else:
                await self._relay.take(found)
        elif not self._inbox.takes_files:
            await self._refuse(found.id, "folders.inbox is not set")
        else:
            await self._on_thread(self._inbox.take, found)

    async def _refuse(self, identifier: str, reason: str) -> None:
        await self._on_thread(self._inbox.refused, identifier, reason)
        _log.warning("the message %s is refused: %s", identifier, reason)
