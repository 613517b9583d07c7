"""Messages from the platform: each goes to the relay, the folder or MQTT clients, and is acknowledged once on disk.

If it does not fit it is not acknowledged, and those behind it wait at the platform. What no part takes is refused, and
the log says why: it would come again for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from edge.agent.envelope import Mail, id_of, read
from edge.agent.errors import EnvelopeError
from edge.agent.inbox_folder import InboxFolder
from edge.agent.mqtt.standin import Standin
from edge.agent.relay import Relay
from edge.client.client import Client
from edge.client.errors import DiskFull, StoreFailed, StoreFull
from edge.client.message import IncomingMessage

AGAIN_S: Final = 5.0
UNKNOWN: Final = "-"

_log: Final = logging.getLogger("waystation.agent")


class Dispatch:
    """`relay`, `standin`: None if they are off. `on_thread`: see :class:`edge.agent.relay.Relay`."""

    def __init__(
        self,
        client: Client,
        relay: Relay | None,
        inbox: InboxFolder,
        on_thread: Callable[..., Awaitable[Any]],
        standin: Standin | None = None,
    ) -> None:
        self._client, self._relay, self._inbox, self._on_thread = client, relay, inbox, on_thread
        self._standin = standin

    async def run(self) -> None:
        """For ever; raises the error that ended the client."""
        async for message in self._client.messages():
            await self._take(message)
            message.acknowledge()

    async def _take(self, message: IncomingMessage) -> None:
        has_complained = False
        while True:
            try:
                return await self._try(message)
            except EnvelopeError as error:
                identifier = id_of(message.user_properties) or UNKNOWN
                return await self._refuse(identifier, str(error))
            except (StoreFull, DiskFull, StoreFailed) as error:
                if not has_complained:
                    _log.warning("a message waits at the platform: %s", error)
                has_complained = True
                await asyncio.sleep(AGAIN_S)

    async def _try(self, message: IncomingMessage) -> None:
        if self._standin is not None and await self._standin.take(message):
            return
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
        _log.warning("the message %s from the platform is refused: %s", identifier, reason)
        await self._on_thread(self._inbox.refused, identifier, reason)
