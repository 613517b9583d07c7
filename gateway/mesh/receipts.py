"""Takes receipts of recipients, from whoever has learnt them: what waits for the recipient here ends (M12, M14, M21).

A receipt counts if a certificate of its signer with the role of a recipient is known and in force, and the signature is
that key's. It ends only what waits in the signer's own session, and only an envelope to the signer; so an agent can say
nothing of other agents' messages. What does not wait here, or not any more, is accepted and ignored: a device may have
got its message by any way, and several agents bring the same receipt.
"""

import asyncio
from collections.abc import Sequence

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.errors import BundleError
from bundles.receipt import Receipt, Role
from gateway.errors import NotAdmitted, SpoolError
from gateway.host.host_server import HostServer
from gateway.mesh.deliveries import DeliveryReports
from gateway.mesh.platform import Platform
from gateway.shard.messages import Message
from gateway.slices import in_slices
from schemas.mesh_api import ReceiptResult


class ReceiptAdmission:
    """Of one gateway."""

    def __init__(self, platform: Platform, hosts: HostServer, reports: DeliveryReports) -> None:
        self._platform = platform
        self._home = hosts.home
        self._counts = hosts.counts
        self._reports = reports

    async def take(self, receipts: Sequence[bytes]) -> list[ReceiptResult]:
        """A result for each receipt, in order."""
        results = [self._checked(raw) async for raw in in_slices(receipts)]
        by_signer: dict[str, dict[str, Receipt]] = {}
        for one in results:
            if isinstance(one, Receipt):
                by_signer.setdefault(one.signer, {})[one.message_id] = one
        signers = [*by_signer]
        ended = await asyncio.gather(*(self._settle(signer, by_signer[signer]) for signer in signers))
        outcomes = dict(zip(signers, ended, strict=True))
        answer = [one if isinstance(one, ReceiptResult) else outcomes[one.signer][one.message_id] for one in results]
        for result in answer:
            self._counts[f"receipts_{result.outcome}"] += 1
        return answer

    def _checked(self, raw: bytes) -> ReceiptResult | Receipt:
        try:
            receipt = receipt_format.decode(raw)
        except BundleError as error:
            return ReceiptResult("refused", str(error))
        signer = receipt.signer
        if receipt.role is not Role.RECIPIENT:
            return ReceiptResult("refused", f"only recipients' receipts are taken here, not one as {receipt.role.name}")
        if not self._platform.known.signer_keys(signer, Role.RECIPIENT):
            text = f"no certificate of {signer} as a recipient is known here that is in force: send it along"
            return ReceiptResult("later", text)
        try:
            receipt_format.verify(receipt, self._platform.known.signer_keys)
        except BundleError as error:
            return ReceiptResult("refused", str(error))
        return receipt

    async def _settle(self, signer: str, receipts: dict[str, Receipt]) -> dict[str, ReceiptResult]:
        """The results for the verified receipts of one signer, by message id."""
        originators: dict[str, str] = {}

        def is_settled(message: Message) -> bool:
            try:
                header = bundle_format.decode(message.payload).header
            except BundleError:
                return False
            receipt = receipts[message.id]
            originators[message.id] = header.originator
            is_signers = header.recipient == signer and header.message_id == message.id
            return is_signers and receipt.settles(header)

        try:
            ended = await self._home.home_of(signer).waiting.end(signer, frozenset(receipts), is_settled)
        except (NotAdmitted, SpoolError) as error:
            return dict.fromkeys(receipts, ReceiptResult("later", str(error)))
        results = dict.fromkeys(receipts, ReceiptResult("unknown"))
        for message_id in ended.ended:
            results[message_id] = ReceiptResult("settled")
            self._reports.received(message_id, originators[message_id], signer)
        text = f"{signer} is connected and has not answered yet, or the end could not be written"
        return results | dict.fromkeys(ended.later, ReceiptResult("later", text))
