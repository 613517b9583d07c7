"""Tells senders about mail that the platform refused, or that expired here (M2: nothing ends silently).

Such messages are in a table of the outbox, or of the mesh's store, until the report is on disk. A report that is made
twice, because the agent was killed in between, has the same id, by which the relay recognises it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from edge.agent.agent_store import AgentStore, Failed
from edge.agent.dsn import Failure
from edge.agent.envelope import Mail, read
from edge.agent.errors import EnvelopeError
from edge.client.client import Client
from edge.client.errors import DiskFull, NotAccepted

CHECK_S: Final = 1.0
AGAIN_S: Final = 10.0

_log: Final = logging.getLogger("waystation.agent")

Report = Callable[[Mail, list[Failure]], Awaitable[str]]


class FailedMessages(Protocol):
    """Messages that failed, on disk until their senders know."""

    def take_news(self) -> bool:
        """Whether there may be more than at the last call."""
        ...

    def try_again(self) -> None:
        """A sender could not be told yet: there is news."""
        ...

    async def first(self) -> Failed | None:
        """The oldest one."""
        ...

    async def forget(self, sequence: int) -> None:
        """The sender knows, or cannot be told. Raises DiskFull."""
        ...


class OutboxFailures:
    """Those of a client whose store is `store`."""

    def __init__(self, client: Client, store: AgentStore) -> None:
        self._client, self._store = client, store

    def take_news(self) -> bool:
        return self._store.take_news()

    def try_again(self) -> None:
        self._store.try_again()

    async def first(self) -> Failed | None:
        return await self._client.on_store(lambda _: self._store.first_failed())

    async def forget(self, sequence: int) -> None:
        await self._client.on_store(lambda _: self._store.forget_failed(sequence))


class Failures:
    """`report`: see :class:`edge.agent.relay.Relay`."""

    def __init__(self, messages: FailedMessages, report: Report) -> None:
        self._messages, self._report = messages, report

    async def run(self) -> None:
        """For ever; raises the error that ended the client."""
        while True:
            pause_s = CHECK_S
            if self._messages.take_news():
                pause_s = CHECK_S if await self.step() else AGAIN_S
            await asyncio.sleep(pause_s)

    async def step(self) -> bool:
        """Reports all that have failed; False if that must be tried again."""
        while (failed := await self._messages.first()) is not None:
            try:
                await self._tell(failed)
                await self._messages.forget(failed.sequence)
            except (NotAccepted, DiskFull) as error:
                _log.warning("a report waits: %s", error)
                self._messages.try_again()
                return False
        return True

    async def _tell(self, failed: Failed) -> None:
        try:
            found = read(failed.properties, failed.payload)
        except EnvelopeError:
            # An application's own message, or one of an MQTT client: the log has it.
            _log.error("a message is %s: %s", failed.state, failed.reason)
            return
        if isinstance(found, Mail):
            failures = [Failure(address, failed.reason, failed.state == "expired") for address in found.recipients]
            await self._report(found, failures)
        else:
            _log.error("the file %s (%s) is %s: %s", found.name, found.id, failed.state, failed.reason)
