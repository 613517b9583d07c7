"""A node as what the uplink takes along messages for devices with (M15, M21); beside the node's holder of bundles."""

import logging
from collections.abc import Sequence
from typing import Final

from bundles import receipt as receipt_format
from bundles.bundle import Bundle
from bundles.errors import BundleError
from bundles.receipt import Receipt, Role
from edge.node.node import MeshNode

_log: Final = logging.getLogger("waystation.uplink")


class NodeCarrier:
    """A :class:`edge.uplink.carry_holder.CarryHolder`. The node is open while the uplink runs."""

    def __init__(self, node: MeshNode) -> None:
        self._node = node

    def devices(self) -> Sequence[str]:
        return self._node.contacts.recent.names

    async def learn(self, certificates: Sequence[bytes]) -> None:
        for der in certificates:
            try:
                self._node.take_certificate(der)
            except BundleError as error:
                _log.warning("a gateway has sent a certificate that cannot be used: %s", error)

    async def carry(self, bundle: Bundle) -> bool:
        return await self._node.desk.carry(bundle)

    def receipts_after(self, number: int, most: int) -> tuple[Sequence[Receipt], int]:
        known = self._node.carrier.receipts
        if known.number == number:
            return [], number
        later = known.numbered(number, most)
        ids = [one.message_id for one in later if one.role is Role.RECIPIENT]
        found = [receipt_format.decode(one) for one in known.encoded(ids)] if ids else []
        return found, later[-1].number if later else known.number

    def certificates(self, originator: str) -> Sequence[bytes]:
        return [one.der for one in self._node.known.of(originator)]
