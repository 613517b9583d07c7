"""Messages of this agent, from the application until they are delivered or expire (M2, M8, M17).

A message has its sequence, and so its id, before it is on disk, and is in the carrier, where contacts find it, after: a
peer never has a message that this node could forget and whose number it could use again.

A gateway's receipt for an envelope is not the recipient's: :mod:`edge.node.at_platform` keeps what follows from that.

If the recipient's key is not known, the message waits as it is, only here. It has its place in the order of sequences,
its capacity in the store, and it ages. It is sealed when the key comes.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Final

from bundles import content as content_format
from bundles import sealing
from bundles.bundle import Bundle, Header, Kind, encode_header
from bundles.content import Content
from bundles.id_table import raw_id
from bundles.identity import Identity
from bundles.known_certificates import KnownCertificates
from bundles.receipt import Receipt, Role
from edge.client.errors import LifetimeNotAllowed
from edge.node.at_platform import AtPlatform
from edge.node.batch import BundleRow, NoticeRow, Step, UnsealedRow
from edge.node.disk_carrier import DiskCarrier, signed_size
from edge.node.held_on_disk import DiskHeld
from edge.node.journal import Journal
from edge.node.own_messages import OwnMessages
from schemas.identity import message_id_of

EXPIRED: Final = "its lifetime has passed"
ACKNOWLEDGED: Final = "acknowledged"
"""The step of a message that the platform has; it brings it to its recipient."""
DELIVERED: Final = "delivered"
"""The step of a message whose recipient, or exit agent, has it."""

_log: Final = logging.getLogger("waystation.mesh")


class Submissions:
    """`identity` returns the present one. `on_held` is called when a message of ours is in the carrier, `on_notice`
    when there is something to tell the application."""

    def __init__(
        self,
        journal: Journal,
        carrier: DiskCarrier,
        at_platform: AtPlatform,
        known: KnownCertificates,
        identity: Callable[[], Identity],
        on_held: Callable[[Bundle], None],
        on_notice: Callable[[], None],
    ) -> None:
        self._journal, self._carrier, self._at_platform = journal, carrier, at_platform
        self._known, self._identity = known, identity
        self._on_held, self._on_notice = on_held, on_notice
        self._own = OwnMessages(partial(message_id_of, journal.name, journal.incarnation))
        self._unsealed: dict[int, UnsealedRow] = {}  # without their plaintext, in order
        self._notice = 0

    def recover(self, bundles: list[DiskHeld], unsealed: list[UnsealedRow], last_notice: int) -> None:
        """What was there at the start: own bundles, and what is not sealed yet."""
        if any(one.sequence > other.sequence for one, other in pairwise(bundles)):  # sorting takes memory
            bundles.sort(key=attrgetter("sequence"))
        sealed = ((one.sequence, one.recipient, one.raw_id) for one in bundles)
        waiting = ((one.sequence, one.recipient, raw_id(one.message_id)) for one in (row.header for row in unsealed))
        for sequence, recipient, raw in heapq.merge(sealed, waiting, key=itemgetter(0)):
            self._own.begin(recipient, sequence, raw)
        for row in unsealed:
            self._wait_for_key(row)
        self._notice = last_notice

    @property
    def waiting_for_keys(self) -> int:
        """Messages that are not sealed yet."""
        return len(self._unsealed)

    def wanted(self) -> list[str]:
        """The agents whose certificates messages wait for."""
        return list(dict.fromkeys(name for row in self._unsealed.values() if (name := row.header.recipient)))

    # -- the beginning -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        kind: Kind,
        destination: str,
        content: Content,
        lifetime_s: int,
        on_stored: Callable[[str], None] | None = None,
    ) -> str:
        """The message's id, once it is on disk. `on_stored` is called with it before it is committed: for a log that
        keeps more in the same transaction. Raises NotAccepted, FormatError (a field does not fit), StoreError."""
        if lifetime_s < 1:
            raise LifetimeNotAllowed(f"a lifetime of {lifetime_s} s is not allowed: it must be at least 1")
        journal, plaintext = self._journal, content_format.encode(content)
        names = journal.name, journal.incarnation, journal.last_sequence + 1
        header = Header(*names, destination, kind, journal.now_ms, lifetime_s)
        size = signed_size(len(encode_header(header)), len(plaintext) + sealing.OVERHEAD_BYTES)
        message_id = header.message_id
        self._carrier.set_aside(header, size, message_id)
        batch = journal.change()
        if on_stored is not None:
            on_stored(message_id)
        journal.use_sequence(header.sequence)
        self._own.begin(header.recipient, header.sequence, raw_id(message_id))
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bundle = self._sealed(header, plaintext, 0)
        since = journal.now_s
        if bundle is None:
            row = UnsealedRow(header, since, size, plaintext)
            batch.unsealed[header.sequence] = row
            batch.accepted.append(lambda: self._wait_for_key(row._replace(plaintext=b"")))
        else:
            copies = self._carrier.limits.copies or None
            vars(bundle)["message_id"] = message_id  # where its cached property keeps it: it costs a hash each time
            batch.add(message_id, BundleRow(bundle, copies, since))
            batch.accepted.append(lambda: self._hold(bundle, since))
        batch.accepted.append(lambda: _succeed(accepted))
        batch.refused.append(lambda error: self._refuse(message_id, error, accepted))
        detail = f"to {destination}, {len(content.payload)} bytes" + ("" if bundle else "; its key is not known yet")
        batch.accepted_steps.append(Step(message_id, journal.wall_s, "accepted", detail))
        await accepted
        return message_id

    async def seal(self) -> None:
        """Keys may have come: seals what waits for them, in order."""
        for sequence, row in list(self._unsealed.items()):
            if self._known.sealing_key(row.header.recipient) is None:
                continue
            plaintext = await self._journal.read(lambda store, one=sequence: store.plaintext(one))  # type: ignore[misc]
            if sequence not in self._unsealed:
                continue  # its lifetime has passed, or it was sealed, meanwhile
            bundle = self._sealed(row.header, plaintext, max(0, int(self._journal.now_s - row.since)))
            if bundle is None:
                continue
            del self._unsealed[sequence]
            self._seal(sequence, bundle)

    def _seal(self, sequence: int, bundle: Bundle) -> None:
        batch, now_s = self._journal.change(), self._journal.now_s
        batch.sealed[sequence] = BundleRow(bundle, self._carrier.limits.copies or None, now_s)
        batch.steps.append(Step(bundle.message_id, self._journal.wall_s, "sealed"))
        batch.done.append(lambda: self._hold(bundle, now_s))

    def _sealed(self, header: Header, plaintext: bytes, age_s: int) -> Bundle | None:
        """The bundle; None while the key is not known."""
        key = self._known.sealing_key(header.recipient)
        if key is None:
            return None
        low_water = self._own.low_water(header)
        ended_below = min(low_water, self._at_platform.lowest(header.recipient) or low_water)
        header = replace(header, low_water=low_water, ended_below=ended_below)
        bundle = self._identity().bundle(header, sealing.seal(header, plaintext, key))
        return replace(bundle, age_s=age_s)

    def _hold(self, bundle: Bundle, since: float) -> None:
        self._carrier.admit(bundle, since)
        if bundle.message_id not in self._carrier:  # there is a receipt already
            self._journal.change(urgent=False).removed[bundle.message_id] = None
        self._on_held(bundle)

    def _wait_for_key(self, row: UnsealedRow) -> None:
        self._unsealed[row.header.sequence] = row
        self._carrier.reserve_capacity(row.header.message_id, row.size)

    def _refuse(self, message_id: str, error: Exception, accepted: "asyncio.Future[None]") -> None:
        self._own.end(message_id)
        self._carrier.end_arrival(message_id)
        if not accepted.done():
            accepted.set_exception(error)
            accepted.exception()

    # -- the end -------------------------------------------------------------------------------------------------------

    def delivered(self, receipt: Receipt) -> None:
        """A receipt is valid, and the carrier has taken it: if it is for a message of ours the application is told, in
        the commit that removes the bundle."""
        is_ours = self._own.is_settled_by(receipt)
        batch = self._journal.change(urgent=is_ours)
        batch.receipts.append(receipt)
        is_at_platform = self._at_platform.is_ended_by(receipt)
        if is_at_platform:
            batch.at_platform.update(self._at_platform.end(receipt.message_id))
        if is_ours or is_at_platform or receipt.message_id in batch.removed:
            detail = f"says {receipt.signer} as {receipt.role.name.lower()}"
            event = ACKNOWLEDGED if receipt.role is Role.GATEWAY else DELIVERED
            batch.steps.append(Step(receipt.message_id, self._journal.wall_s, event, detail))
        if is_ours:
            self._notify(receipt.message_id, receipt)

    def expired(self, bundle: Bundle) -> None:
        """The lifetime of a bundle has passed, ours or another's."""
        batch = self._journal.change(urgent=False)
        batch.steps.append(Step(bundle.message_id, self._journal.wall_s, "expired"))
        self._notify(bundle.message_id, None, EXPIRED)

    def refused(self, message_id: str, reason: str) -> bool:
        """A message of ours will never be taken: its bundle goes, and the application is told, in one commit. False if
        it is not one of ours that is alive: another's stays."""
        if message_id not in self._own or message_id not in self._carrier:
            return False
        self._carrier.drop(message_id)
        batch = self._journal.change()
        batch.steps.append(Step(message_id, self._journal.wall_s, "refused", reason))
        self._notify(message_id, None, reason)
        return True

    def expire_at_platform(self) -> None:
        """Forgets what the platform had of messages whose lifetime has passed."""
        changes = self._at_platform.expire(self._journal.now_s)
        if changes:
            self._journal.change(urgent=False).at_platform.update(changes)

    def expire_unsealed(self) -> None:
        """Ends messages whose lifetime has passed before their key came."""
        now_s = self._journal.now_s
        for sequence, row in list(self._unsealed.items()):
            if now_s - row.since < row.header.lifetime_s:
                continue
            message_id = row.header.message_id
            del self._unsealed[sequence]
            self._carrier.end_arrival(message_id)
            batch = self._journal.change(urgent=False)
            batch.unsealed_over.append(sequence)
            detail = f"no certificate came for {row.header.recipient or 'a gateway'}"
            batch.steps.append(Step(message_id, self._journal.wall_s, "expired", detail))
            self._notify(message_id, None, f"{EXPIRED}; {detail}")

    def _notify(self, message_id: str, receipt: Receipt | None, reason: str = "") -> None:
        ended = self._own.end(message_id)
        if ended is None:
            return
        self._notice += 1
        batch = self._journal.change()
        batch.notices.append(NoticeRow(self._notice, message_id, receipt, reason))
        batch.done.append(self._on_notice)
        if receipt is not None and receipt.role is Role.GATEWAY and ended.recipient is not None:
            began = self._at_platform.begin(message_id, ended.sequence, ended.recipient, self._journal.now_s)
            batch.at_platform.update(began)


def _succeed(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
