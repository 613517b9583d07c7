"""One contact on one link: bytes from the socket to the core, its events to the store, and answers back.

Each read is one turn: the core takes the bytes, what its events ask for is noted in the journal, and the next read
waits for the commit. So a peer sends no faster than the disk is, and one fsync serves all that a read has brought. The
core is told `stored` and `receipts_stored` by a callback of the journal, not by this task, which may end before.

Writing is a task of its own: it asks the core for bytes while the transport takes them, and loads ciphertexts before
the core needs them. A third one watches: it ends a contact whose peer owes an answer, or does not take our bytes. While
nothing is read, because our disk is full, it does not blame the peer for silence.
"""

import asyncio
import logging
from typing import Final

from bundles.certificates import Certificate
from edge.answers import Changes
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Closed, EndedBy, Event
from edge.node.contacts import PeerStatus
from edge.node.desk import Desk

READ_BYTES: Final = 256 << 10
CLOSE_S: Final = 2.0
"""For the last bytes, which tell the peer why."""

_log: Final = logging.getLogger("waystation.mesh")


class ContactDriver:
    """`certificate`: the peer's, as the link was authenticated with it. `dialled`: by us. Read-only: `contact`."""

    def __init__(
        self,
        desk: Desk,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        certificate: Certificate,
        address: str,
        *,
        dialled: bool,
    ) -> None:
        self._desk, self._reader, self._writer = desk, reader, writer
        self.certificate, self.address, self.dialled = certificate, address, dialled
        self._changes, self._has_output, self._is_reading = Changes(), True, True
        self._began_s = self._writing_since = 0.0

    async def run(self) -> Closed:
        """Until the contact has ended; the link is closed then. Raises StoreError."""
        now = self._began_s = self._desk.now_s
        self.contact = Contact(self._desk.carrier, now, self.certificate.name)
        tasks = [asyncio.create_task(part) for part in (self._read(), self._write(), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failed = next((error for task in done if (error := task.exception()) is not None), None)
            if failed is not None and not isinstance(failed, OSError):
                raise failed
            self._take(self.contact.eof())
            if tasks[1] not in done:
                self._wake()
                await asyncio.wait([tasks[1]], timeout=CLOSE_S)
        finally:
            self._take(self.contact.eof())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.transport.abort()
        closed = self.contact.closed
        assert closed is not None
        _log.log(
            logging.WARNING if closed.by is EndedBy.FAULT else logging.INFO,
            "contact with %s at %s: %s",
            *(self.certificate.name, self.address, closed.detail),
        )
        return closed

    def refresh(self) -> None:
        """There is something new to send."""
        self.contact.refresh(self._desk.now_s)
        self._wake()

    def end(self, detail: str) -> None:
        """Ends the contact; the peer is told why."""
        self._take(self.contact.close(detail))
        self._wake()

    def status(self) -> PeerStatus:
        peer, reach = self.contact.peer, self.contact.reach
        return PeerStatus(
            self.certificate.name,
            self.address,
            "connected" if reach.is_reachable else "unreachable",
            self.dialled,
            peer is not None and peer.has_uplink,
            self._desk.now_s - self._began_s,
            reach.problem,
            None if reach.round_trip_s is None else round(reach.round_trip_s * 1000, 1),
        )

    @property
    def is_reachable(self) -> bool:
        """See :attr:`edge.mesh.contact_reach.PeerReach.is_reachable`."""
        return self.contact.reach.is_reachable

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while self.contact.closed is None:
            data = await self._reader.read(READ_BYTES)
            if not data:
                self._take(self.contact.eof())
                return
            self._take(self.contact.receive(data, self._desk.now_s))
            self._wake()
            self._is_reading = False
            await self._desk.answered()
            self._is_reading = True

    async def _write(self) -> None:
        while True:
            data = self.contact.outgoing(self._desk.now_s)
            if data:
                self._writing_since = self._desk.now_s
                self._writer.write(data)
                await self._writer.drain()
                self._writing_since = 0.0
            elif self.contact.closed is not None:
                return
            elif not await self._desk.carrier.ciphertexts.load():
                await self._changes.until(lambda: self._has_output)
                self._has_output = False

    async def _watch(self) -> None:
        idle_s = self._desk.carrier.limits.idle_s
        while self.contact.closed is None:
            await asyncio.sleep(min(1.0, idle_s / 4))
            now = self._desk.now_s
            if self._writing_since and now - self._writing_since > idle_s:
                self._take(self.contact.close(f"the peer has taken nothing for {idle_s:g} s"))
            if self._is_reading:
                self._take(self.contact.check(now))
            if self.contact.has_frames:
                self._wake()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self, events: list[Event]) -> None:
        self._desk.handle(events, self.contact, self.certificate, self._wake)

    def _wake(self) -> None:
        self._has_output = True
        self._changes.wake()
