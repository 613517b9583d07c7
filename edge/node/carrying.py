"""Takes from the platform what waits there for a device that is away, to carry it to that device only (M15, M21).

The platform has the message, and every agent may have the gateway's receipt for it. So the bundle has a budget of its
own, :data:`edge.mesh.spray.FOR_RECIPIENT`: it is given to its recipient and to nobody else, it does not go back to the
platform, and only the recipient's receipt or the end of its lifetime ends it. The budget is on disk with the bundle.
"""

import asyncio
import logging
from collections.abc import Callable

from bundles.bundle import Bundle
from bundles.errors import SignatureError
from edge.mesh.contact_frames import Offer, Reason
from edge.mesh.errors import ConflictError
from edge.mesh.spray import FOR_RECIPIENT
from edge.node.batch import BundleRow, Step
from edge.node.disk_carrier import DiskCarrier
from edge.node.journal import Journal

_log = logging.getLogger("waystation.mesh")


async def carry(journal: Journal, carrier: DiskCarrier, bundle: Bundle, on_news: Callable[[], None]) -> bool:
    """Holds a bundle from the platform for its recipient, an agent; True once it is on disk, or will not be carried: it
    is held already, is for this agent, is delivered or too old, or does not verify, because its originator is unknown
    here for instance. False if there is no capacity for it now. The log says why. Raises StoreError."""
    header, message_id = bundle.header, bundle.message_id
    if header.recipient in (None, carrier.name):
        return True
    offer = Offer(header, bundle.size, FOR_RECIPIENT, bundle.hops, bundle.age_s)
    reason = carrier.refusal(offer, journal.now_s)
    if reason in (Reason.HAS_IT, Reason.DELIVERED):
        return True
    if reason is not None:
        _log.info("message %s is not taken along: %s", message_id, reason.name.lower().replace("_", " "))
        return reason not in (Reason.FULL, Reason.BUSY)
    try:
        carrier.verify(bundle)  # its originator is known: the carrier did not object
    except SignatureError as error:
        _log.warning("a gateway gives a bundle that does not verify: %s", error)
        return True
    if carrier.begin_storing(message_id) is not None:
        _log.info("message %s is not taken along: a peer has just brought it", message_id)
        return False
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def finish(*, is_held: bool) -> None:
        if not answer.done():
            answer.set_result(is_held)

    def stored() -> None:
        carrier.end_storing(message_id)
        try:
            carrier.add(bundle, FOR_RECIPIENT, since)
        except ConflictError as error:
            _log.warning("%s", error)
        if message_id not in carrier:  # a receipt came meanwhile
            journal.change(urgent=False).removed[message_id] = None
        finish(is_held=True)
        on_news()

    def refused(error: Exception) -> None:
        carrier.end_storing(message_id)
        _log.info("message %s is not taken along: %s", message_id, error)
        finish(is_held=False)

    carrier.begin_arrival(offer, journal.now_s)
    batch, since = journal.change(), journal.now_s
    batch.add(message_id, BundleRow(bundle, FOR_RECIPIENT, since))
    batch.accepted_steps.append(Step(message_id, journal.wall_s, "carried", "from the platform"))
    batch.accepted.append(stored)
    batch.refused.append(refused)
    await journal.durable()
    return await answer
