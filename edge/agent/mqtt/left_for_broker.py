"""What waits for the broker while `mqtt.broker` is off: it is counted, and removed if the operator says so (M20).

It is in two files: in the stand-in's spool, and in the outbox of the broker's client. With the broker off nothing is
added, so it is counted once.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from edge.agent import way
from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.far_broker import LANE
from edge.agent.mqtt.forwarding import AT_ONCE
from edge.agent.mqtt.store import EVERY, MqttStore
from edge.client.errors import StoreError

DISCARDED: Final = "what waited for the broker was discarded"

_log: Final = logging.getLogger("waystation.agent")


class LeftForBroker:
    """`open_store`: of the outbox `path`, for a thread. Read-only: `messages`, `size` in bytes, once counted."""

    def __init__(self, path: Path, open_store: Callable[[], ExactStore], changes: Changes) -> None:
        self._path, self._open_store, self._changes = path, open_store, changes
        self.messages = self.size = 0

    async def count(self) -> None:
        """Says in the log if there is something. Raises StoreError of the spool's file; an outbox that cannot be read
        counts as empty, and the log says why."""
        spooled = await self._changes.make(lambda store: store.waiting(LANE, EVERY))
        handed_over = (0, 0)
        if self._path.exists():
            try:
                handed_over = await asyncio.to_thread(self._usage)
            except StoreError as error:
                _log.warning("mqtt.broker is off, and what waits for it cannot be counted: %s", error)
        self.messages, self.size = spooled[0] + handed_over[0], spooled[1] + handed_over[1]
        if self.messages:
            _log.warning(
                "mqtt.broker is off, and messages wait for it: %d. Turn it on, or discard them with "
                "`waystation agent discard broker`",
                self.messages,
            )

    async def discard(self) -> int:
        """Removes all of it; how many messages there were. Raises StoreError."""
        while found := await self._changes.make(lambda store: store.spooled(LANE, 0, AT_ONCE)):
            steps = [(one.message.id, way.DROPPED, DISCARDED) for one in found]
            await self._changes.make(partial(_remove, found[-1].number, steps))
        await asyncio.to_thread(self._remove_outbox)
        discarded, self.messages, self.size = self.messages, 0, 0
        _log.warning("messages that waited for the broker were discarded: %d", discarded)
        return discarded

    def _usage(self) -> tuple[int, int]:
        store = self._open_store()
        try:
            found = store.recover()
            return found.messages, found.size
        finally:
            store.close()

    def _remove_outbox(self) -> None:
        try:
            for suffix in ("", "-wal", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be removed: {error.strerror}") from error


def _remove(number: int, steps: list[tuple[str, str, str]], store: MqttStore) -> None:
    store.forwarded(LANE, number, steps)
