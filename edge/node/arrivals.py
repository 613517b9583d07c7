"""Bundles for this agent: each message once to the application, and a signed receipt as soon as it is durable here
(M8, M14, M15, M17).

One commit holds all of it: that the message was seen, its plaintext in the inbox, our receipt, and that a copy that was
carried here is gone. So after a kill either nothing has happened, and the peer still has its copy; or all of it.

A bundle that no key of ours opens, or whose content is malformed, would come again from each carrier until it expires.
It is settled: it counts as seen and gets a receipt, so that its copies disappear; the log says why the application does
not get it, and `unreadable` counts it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from bundles import content as content_format
from bundles.bundle import Bundle
from bundles.errors import FormatError, SealError, SignatureError
from bundles.identity import Identity
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Receipt, Role
from bundles.seen import Seen, SeenState, Verdict
from edge.client.errors import StoreFull
from edge.mesh.contact_frames import Reason
from edge.node.batch import InboxRow, Step
from edge.node.disk_carrier import DiskCarrier
from edge.node.errors import NodeError
from edge.node.journal import Journal

_log: Final = logging.getLogger("waystation.mesh")


class Arrivals:
    """`messages_max`, `bytes_max`: of what waits for the application. `on_arrival` is called when there is something.
    Read-only: `messages`, `size` (bytes) of what waits; `unreadable`."""

    def __init__(
        self,
        journal: Journal,
        carrier: DiskCarrier,
        known: KnownCertificates,
        identity: Callable[[], Identity],
        on_arrival: Callable[[], None],
        *,
        messages_max: int,
        bytes_max: int,
    ) -> None:
        self._journal, self._carrier, self._known, self._identity = journal, carrier, known, identity
        self._on_arrival, self._messages_max, self._bytes_max = on_arrival, messages_max, bytes_max
        self._seen = Seen()
        self._number = self.messages = self.size = self.unreadable = 0

    def recover(self, seen: Iterable[SeenState], inbox: tuple[int, int, int]) -> None:
        """What was there at the start."""
        self._seen = Seen(stored=seen)
        self.messages, self.size, self._number = inbox

    def arrive(
        self,
        bundle: Bundle,
        then: Callable[[Receipt], None],
        refused: Callable[[Reason], None],
        *,
        from_platform: bool = False,
    ) -> Receipt | None:
        """A verified bundle to us. Either `then` is called with our receipt, when all is durable; or `refused`, and
        None returned. `from_platform`: see :meth:`bundles.seen.Seen.take`."""
        header, journal = bundle.header, self._journal
        if not self._seen.has(header):
            reason = self._refusal(bundle) or self._take(bundle, from_platform)
            if reason is not None:
                refused(reason)
                return None
        receipt = self._identity().receipt(bundle.message_id, Role.RECIPIENT, journal.now_ms)
        batch = journal.change()
        batch.receipts.append(receipt)
        batch.removed[bundle.message_id] = None
        batch.done.append(lambda: self._settle(receipt, then))
        return receipt

    def handed_over(self, row: InboxRow) -> None:
        """The application has it on disk."""
        self.messages -= 1
        self.size -= len(row.plaintext)
        batch = self._journal.change(urgent=False)
        batch.handed_over.append(row.number)
        batch.steps.append(Step(row.header.message_id, self._journal.wall_s, "handed over"))

    def _refusal(self, bundle: Bundle) -> Reason | None:
        if not self._known.signer_keys(self._journal.name, Role.RECIPIENT):
            return Reason.BUSY  # our certificate has ended or is revoked: nobody would believe our receipt
        is_full = self.messages >= self._messages_max or self.size + len(bundle.ciphertext) > self._bytes_max
        return Reason.FULL if is_full else None

    def _take(self, bundle: Bundle, from_platform: bool) -> Reason | None:
        header = bundle.header
        if self._seen.take(header, self._journal.now_s, from_platform=from_platform) is Verdict.FULL:
            return Reason.FULL
        batch = self._journal.change()
        batch.take(self._seen, header)
        plaintext, detail = self._open(bundle)
        batch.steps.append(Step(bundle.message_id, self._journal.wall_s, "received", detail))
        if plaintext is not None:
            self._number += 1
            self.messages += 1
            self.size += len(plaintext)
            left = replace(header, lifetime_s=max(1, bundle.remaining_s))
            batch.arrived.append(InboxRow(self._number, left, plaintext))
            batch.done.append(self._on_arrival)
        return None

    async def receipt_from_platform(
        self, bundle: Bundle, failed: asyncio.Future[None], on_arrival: Callable[[], None]
    ) -> Receipt:
        """As :meth:`arrive`, of a bundle from the platform: our receipt, once the bundle is durable. `failed` has the
        error if the store fails. Raises StoreFull, StoreError, NodeError."""
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

        def refused(reason: Reason) -> None:
            if reason is Reason.FULL:
                answer.set_exception(StoreFull("the inbox is full: its application takes nothing"))
            else:
                answer.set_exception(NodeError("this agent has no certificate to sign receipts with"))

        def then(receipt: Receipt) -> None:
            if not answer.done():
                answer.set_result(receipt)
            on_arrival()

        self.arrive(bundle, then, refused, from_platform=True)
        waiting: list[asyncio.Future[Any]] = [answer, failed]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            failed.result()
        return await answer

    def _open(self, bundle: Bundle) -> tuple[bytes | None, str]:
        """The plaintext, if it is a content, and what to write in the log."""
        try:
            plaintext = self._identity().unseal(bundle)
            content_format.decode(plaintext)
        except (SealError, FormatError) as error:
            self.unreadable += 1
            _log.warning("a message of %s is settled, but cannot be read: %s", bundle.header.originator, error)
            return None, f"it cannot be read: {error}"
        return plaintext, f"from {bundle.header.originator}, after {bundle.hops} links"

    def _settle(self, receipt: Receipt, then: Callable[[Receipt], None]) -> None:
        try:
            self._carrier.take_receipt(receipt)
        except SignatureError as error:  # our certificate has ended since
            _log.warning("our own receipt is not valid: %s", error)
        then(receipt)
