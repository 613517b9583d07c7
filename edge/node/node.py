"""A node of the mesh, running: what it is given is on disk before anybody hears of it (M2, M5-M8, M14, M15, M17).

    application ── submit ──► submissions ─┐                                ┌─ contact_driver ── links ── peers
    application ◄─ hand_over ◄─ arrivals ◄─┴─ journal (bundle_store), carrier ┤       ▲ desk     (server, dialer)
    uplink ── take, settle, watch, load ────────────────────────────────────┘

Everything that changes goes through the journal; what others may hear only then is done by its callbacks.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from bundles import content as content_format
from bundles.bundle import Bundle, Header, Kind
from bundles.certificates import Authority
from bundles.content import Content
from bundles.errors import SignatureError
from bundles.identity import Identity
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Receipt, VerifiedReceipt
from edge.client.errors import StoreError
from edge.client.store_clock import DOWN_MOST_S
from edge.mesh.carrier import Carrier
from edge.mesh.held import ForOthers, Held, HeldWatcher, is_for_others
from edge.mesh.pending_reports import PendingReports
from edge.node.batch import InboxRow, NoticeRow
from edge.node.bundle_store import BundleStore, StepLog
from edge.node.contacts import Contacts, PeerStatus
from edge.node.desk import Desk
from edge.node.errors import NodeError, NotForUs
from edge.node.held_on_disk import with_parts
from edge.node.journal import Journal
from edge.node.link_server import LinkServer
from edge.node.links import Links
from edge.node.parts import Parts
from edge.node.seeking import Seeking
from edge.node.settings import MeshSettings
from edge.node.tls import LinkTls
from edge.reconnect import FullJitter

OnEnvelope = Callable[[Header, Content], Awaitable[None]]
OnReceipt = Callable[[str, Receipt], Awaitable[None]]
OnFailed = Callable[[str, str], Awaitable[None]]
OpenStore = Callable[..., BundleStore]
T = TypeVar("T")

AnyReceipt = TypeVar("AnyReceipt", bound=Receipt)

FILE: Final = "mesh"
TICK_S: Final = 1.0
EXPIRY_SHARE: Final = 50
"""The search for what has expired looks at all bundles: at most a fiftieth of the time."""

_log: Final = logging.getLogger("waystation.mesh")


class MeshNode:
    """`async with MeshNode(…) as node`; then `await node.ended()` raises the error of a part that has failed.

    `directory`: of the file, which must be this agent's own. `wall_s`, `running_s`, `down_most_s`: see
    :mod:`edge.client.store_clock`. `on_envelope` gets each message for this agent, in the order in which they came, and
    returns once it is on disk there; it is called again until it does, and perhaps once more for the same id if the
    process is killed in between. `on_receipt` and `on_failed` (with the reason) get what became of own messages, at
    least once each. `log`: where messages' ways are written down. `presence`: whether events for message presence are
    logged in `pending`; without an uplink nobody would publish them.

    Entering raises StoreError, NodeError. Read-only for others: `carrier`, `known`, `pending`, `port`,
    `contacts`.
    """

    carrier: Carrier
    known: KnownCertificates
    pending: PendingReports

    def __init__(
        self,
        settings: MeshSettings,
        directory: Path,
        identity: Identity,
        authority: Authority,
        *,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        down_most_s: float = DOWN_MOST_S,
        on_envelope: OnEnvelope,
        on_receipt: OnReceipt | None = None,
        on_failed: OnFailed | None = None,
        log: StepLog | None = None,
        presence: bool = False,
        backoff: Callable[[], FullJitter] = lambda: FullJitter(0.5, 60.0),
        open_store: OpenStore = BundleStore,
    ) -> None:
        self._settings, self._directory, self._identity, self._authority = settings, directory, identity, authority
        self._wall_s, self._running_s, self._down_most_s = wall_s, running_s, down_most_s
        self._on_envelope, self._on_receipt, self._on_failed = on_envelope, on_receipt, on_failed
        self._log, self._presence, self._backoff, self._open_store = log, presence, backoff, open_store
        self._tasks: list[asyncio.Task[None]] = []
        self._when_fresh: list[Callable[[], None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "MeshNode":
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def failed(self) -> bool:
        """Whether the store has failed: nothing is accepted or answered any more."""
        return self._failed.done()

    async def ended(self) -> None:
        """Returns never; raises the error of the part that has failed."""
        done, _ = await asyncio.wait([*self._tasks, self._failed], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise NodeError("a part of the mesh's node has ended")

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        loop, name = asyncio.get_running_loop(), self._identity.name
        self._failed: asyncio.Future[None] = loop.create_future()
        self._has_keys = asyncio.Event()
        self._journal = Journal(self._make_store, self._wall_s, self._running_s, self._down_most_s, self._on_failure)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be made: {error.strerror}") from error
        found = await self._journal.open()
        stack.push_async_callback(self._journal.close)
        parts = self._parts = Parts(
            self._settings, self._journal, found, self._authority, self._wall_s, lambda: self._identity, self
        )
        self.carrier, self.known, self.pending = parts.carrier, parts.known, parts.pending
        self._submissions, self._arrivals, self._certificates = parts.submissions, parts.arrivals, parts.certificates
        self.wanted = parts.submissions.wanted
        self.contacts = Contacts(name)
        tls = self._tls = LinkTls(self._authority, self._directory)
        tls.use(self._identity)
        desk = self.desk = Desk(
            *(self._journal, parts.carrier, self._submissions, self._arrivals, self._certificates, self._fresh),
            presence=parts.pending if self._presence else None,
        )
        self.links = Links(
            *(name, desk, self.contacts, self._certificates, tls),
            connections=self._settings.connections,
            handshake_s=self._settings.handshake_s,
            idle_s=self._settings.idle_s,
        )
        self._server = LinkServer(self.links, self._settings.host, self._settings.port)
        await self._server.open()
        self.port = self._server.port
        self._seeking = Seeking(name, self._settings, self.links, self.contacts, self._backoff)
        stack.push_async_callback(self._close_links)
        running = [self._server.run(), parts.envelopes.run(), parts.notices.run(), self._tick()]
        self._tasks = [asyncio.create_task(one) for one in running]
        self._tasks += self._seeking.start(self.port)
        stack.push_async_callback(self._seeking.stop)
        for held in parts.to_ourselves():
            self.on_held(held.bundle)

    def _make_store(self) -> BundleStore:
        incarnation, settings = secrets.randbits(63), self._settings
        return self._open_store(
            self._directory / FILE,
            self._identity.name,
            incarnation,
            receipts=settings.receipts,
            certificates=settings.certificates,
            log=self._log,
        )

    async def _close_links(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._seeking.close()
        await self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the application -----------------------------------------------------------------------------------------------

    async def submit(
        self,
        kind: Kind,
        destination: str,
        content: Content,
        lifetime_s: int,
        on_stored: Callable[[str], None] | None = None,
    ) -> str:
        """See :meth:`edge.node.submissions.Submissions.submit`."""
        return await self._submissions.submit(kind, destination, content, lifetime_s, on_stored)

    async def on_store(self, call: Callable[[BundleStore], T]) -> T:
        """Runs `call` with the open file on its thread, after the commit that runs. For programs that bring a log; an
        error of the call ends the node. Raises StoreError, NodeClosed."""
        return await self._journal.read(call)

    def peers(self) -> list[PeerStatus]:
        """Peers with a contact, then addresses without one."""
        return [*self.contacts.statuses(), *self._seeking.statuses()]

    def dial(self, host: str, port: int) -> None:
        """Keeps trying to reach the agent at an address, as those in `settings.peers`."""
        self._seeking.dialer.keep((host, port))

    async def network_changed(self) -> None:
        """See :meth:`edge.node.seeking.Seeking.network_changed`."""
        await self._seeking.network_changed()

    def status(self) -> dict[str, int]:
        """What is kept here, for people."""
        return {
            "bundles": len(self.carrier),
            "bundle_bytes": self.carrier.stored_bytes,
            "waiting_for_keys": self._submissions.waiting_for_keys,
            "inbox_messages": self._arrivals.messages,
            "inbox_bytes": self._arrivals.size,
            "unreadable": self._arrivals.unreadable,
            "receipts": len(self.carrier.receipts),
            "reports": len(self.pending),
            "peers_unreachable": self.contacts.unreachable,
            "links": self.links.open,
            "links_refused": self.links.refused,
        }

    # -- the uplink ----------------------------------------------------------------------------------------------------

    def set_uplink(self, is_up: bool) -> None:
        """Whether a gateway can be reached. Peers are told by new contacts: hello says it."""
        if is_up is not self.carrier.has_uplink:
            self.carrier.has_uplink = is_up
            self.contacts.end_all("a gateway can be reached" if is_up else "no gateway can be reached any more")

    async def take(self, bundle: Bundle) -> Receipt:
        """A bundle to this agent that came from its inbox on the platform, in the inbox's order; our receipt, once it
        is durable, for a repetition too. Raises NotForUs, SignatureError, StoreFull, StoreError."""
        if bundle.header.recipient != self._identity.name:
            raise NotForUs(f"bundle {bundle.message_id} is for {bundle.header.destination}, not for this agent")
        if not self.carrier.verify(bundle):
            raise SignatureError(f"there is no valid certificate of {bundle.header.originator}, who wrote the bundle")
        return await self._arrivals.receipt_from_platform(bundle, self._failed, self._fresh)

    async def settle(self, receipts: Sequence[Receipt]) -> None:
        """Receipts from a gateway: once they are on disk, contacts pass them on. One that is not valid is logged.
        Raises StoreError."""
        await self._settle(receipts, self.carrier.take_receipt)

    async def settle_verified(self, receipts: Sequence[VerifiedReceipt]) -> None:
        """As :meth:`settle`, for receipts whose signatures the uplink has checked."""
        await self._settle(receipts, self.carrier.take_verified)

    async def _settle(self, receipts: Sequence[AnyReceipt], take: Callable[[AnyReceipt], bool]) -> None:
        for receipt in receipts:
            try:
                if take(receipt):
                    self._submissions.delivered(receipt)
            except SignatureError as error:
                _log.warning("a receipt from a gateway is not valid: %s", error)
        await self._journal.durable()
        self._fresh()

    async def refuse(self, message_id: str, reason: str) -> bool:
        """The platform will never take this message: if it is ours, its bundle goes and `on_failed` is called; once
        that is on disk. False for another's, which stays. Raises StoreError."""
        is_ours = self._submissions.refused(message_id, reason)
        await self._journal.durable()
        return is_ours

    def watch(self, watcher: HeldWatcher) -> None:
        """`watcher` is told at once of all bundles for the platform or other agents, then of each change of them.
        Raises nothing; neither may the watcher."""
        watching = ForOthers(watcher, self._identity.name)
        for held in self.carrier.all_held():
            watching.added(held)
        self.carrier.watch(watching)

    def sendable(self, most: int) -> list[Held]:
        """The oldest bundles here that are alive and for the platform or other agents, without those that came from
        the platform: at most `most`."""
        now_s, name = self._journal.now_s, self._identity.name
        held = (one for one in self.carrier.all_held() if is_for_others(one, name) and one.remaining_s(now_s))
        return list(islice(held, most))

    async def load(self, held: Sequence[Held]) -> list[Bundle]:
        """The bundles, with their ciphertexts and their present age, to be sent; without those that are gone."""
        ids, now_s = [one.message_id for one in held], self._journal.now_s
        found = await self._journal.read(lambda store: store.ciphertexts(ids, 1 << 62))
        loaded = [(one, with_parts(one.bundle, found[one.message_id])) for one in held if one.message_id in found]
        return [replace(bundle, age_s=one.age_s(now_s)) for one, bundle in loaded]

    def on_fresh(self, call: Callable[[], None]) -> None:
        """`call` is called when there may be something new to send."""
        self._when_fresh.append(call)

    async def durable(self) -> None:
        """Returns once all changes so far are on disk, those of `pending` included. Raises StoreError."""
        await self._journal.durable()

    @property
    def now_s(self) -> float:
        """The store's clock, that of `carrier`."""
        return self._journal.now_s

    # -- certificates --------------------------------------------------------------------------------------------------

    def use(self, identity: Identity) -> None:
        """A renewed certificate, perhaps with new keys, of the same name. Raises NodeError, StoreError."""
        if identity.name != self._identity.name:
            raise NodeError(f"this node is {self._identity.name}, not {identity.name}")
        self._identity = identity
        self._tls.use(identity)
        self._certificates.take(identity.certificate.der)

    def take_certificate(self, der: bytes) -> None:
        """A certificate from enrolment or a gateway. Raises CertificateError."""
        self._certificates.take(der)

    def take_revocations(self, encoded: bytes) -> None:
        """A revocation list from a gateway. Raises FormatError, SignatureError."""
        self._certificates.take_revocations(encoded)

    # -- called by the parts -------------------------------------------------------------------------------------------

    def on_held(self, bundle: Bundle) -> None:
        """A message of ours is in the carrier. One to ourselves has arrived with that."""
        if bundle.header.recipient == self._identity.name:
            receipt = self._arrivals.arrive(bundle, lambda _: None, lambda _: None)
            if receipt is not None:
                self._submissions.delivered(receipt)
        self._fresh()

    def on_certificate(self) -> None:
        """A new certificate is known: messages may wait for it."""
        self._has_keys.set()

    def on_revocations(self) -> None:
        """A newer revocation list is in force."""
        self.contacts.end_all("your certificate is revoked", lambda one: not self.known.is_trusted(one))

    async def give_envelope(self, row: InboxRow) -> None:
        """To the application, until it has it on disk."""
        await self._on_envelope(row.header, content_format.decode(row.plaintext))

    async def give_notice(self, row: NoticeRow) -> None:
        """Tells the application what became of a message of its own."""
        if row.receipt is None:
            if self._on_failed is not None:
                await self._on_failed(row.message_id, row.reason)
        elif self._on_receipt is not None:
            await self._on_receipt(row.message_id, row.receipt)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Ends what is too old, and seals what has a key now."""
        loop, not_before = asyncio.get_running_loop(), 0.0
        while True:
            self._has_keys.clear()
            if self._submissions.waiting_for_keys:
                await self._submissions.seal()
            if loop.time() >= not_before:
                began = loop.time()
                for held in self.carrier.expire(self._journal.now_s):
                    self._submissions.expired(held.bundle)
                    self.desk.expired(held)
                self._submissions.expire_unsealed()
                self._submissions.expire_at_platform()
                not_before = loop.time() + EXPIRY_SHARE * (loop.time() - began)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._has_keys.wait()

    def _fresh(self) -> None:
        self.contacts.refresh()
        for call in self._when_fresh:
            call()

    def _on_failure(self, error: Exception) -> None:
        _log.error("the mesh stops: %s", error)
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()
        self.contacts.end_all("this agent's store has failed")
