"""What an agent takes along from the platform for a device reaches that device, whoever has the gateway's receipt (M14,
M15, M21)."""

import asyncio
from pathlib import Path

from bundles.bundle import Bundle, Kind
from bundles.receipt import Receipt, Role
from edge.mesh.spray import FOR_RECIPIENT
from edge.node.node import MeshNode
from tests.unit.bundles.keys import key
from tests.unit.edge.node.node_host import Join, NodeHost, certificates, eventually, gateway, send

NAMES = ("sender", "carrier", "device", "other")


async def written(directory: Path, count: int = 1) -> list[Bundle]:
    """Envelopes for the device, as the platform has them."""
    async with NodeHost("sender", directory).running(certificates(*NAMES)) as sender:
        for number in range(count):
            await send(sender, "@device", f"message {number}")
        return await sender.load(sender.sendable(count))


def of_gateway(bundle: Bundle) -> Receipt:
    return gateway().receipt(bundle.message_id, Role.GATEWAY, 5_000)


async def knows(node: MeshNode, *bundles: Bundle) -> None:
    """The platform's receipts have come to the node before."""
    node.take_certificate(gateway().certificate.der)
    await node.settle([of_gateway(one) for one in bundles])


def test_it_reaches_the_device_and_the_receipt_comes_back(tmp_path: Path) -> None:
    """M15, M21: though both know that the platform has it; over a restart of the carrier. Nobody else gets it, it does
    not go back to the platform, and the carrier learns the device's receipt."""

    async def scenario() -> None:
        first, second = await written(tmp_path, 2)
        host, device = NodeHost("carrier", tmp_path), NodeHost("device", tmp_path)
        async with host.running(certificates(*NAMES)) as node:
            await knows(node, first)
            assert await node.desk.carry(first)
            assert await node.desk.carry(second)
            assert await node.desk.carry(first), "once more"
            assert len(node.carrier) == 2
        async with host.running() as node, device.running(certificates(*NAMES)) as van:
            await knows(node, second)
            assert [held.copies for one in node.carrier.ids() if (held := node.carrier.held(one))] == [
                FOR_RECIPIENT,
                FOR_RECIPIENT,
            ]
            assert node.sendable(10) == []
            async with NodeHost("other", tmp_path).running(certificates(*NAMES)) as other:
                other.set_uplink(True)
                await Join(node, other).run(lambda: len(other.carrier.receipts) == 2)
                assert len(other.carrier) == 0
            await knows(van, first, second)
            await Join(node, van).run(lambda: len(device.given) == 2 and not len(node.carrier))
            roles = [found.role for one in (first, second) if (found := node.carrier.receipts.get(one.message_id))]
            assert roles == [Role.RECIPIENT] * 2
            assert node.contacts.recent.names == ["device", "other"]
            assert await node.desk.carry(first), "it needs not be carried"
            assert not len(node.carrier)
            await van.take(second)
            await eventually(lambda: van.status()["inbox_messages"] == 0, "handed over")
        assert sorted(content.payload for _, content in device.given) == [b"message 0", b"message 1"]

    asyncio.run(scenario())


def test_what_does_not_verify_or_does_not_fit_is_not_taken(tmp_path: Path) -> None:
    """M2, M15: what does not fit may be asked for again."""

    async def scenario() -> None:
        bundle, further = await written(tmp_path, 2)
        async with NodeHost("carrier", tmp_path, stored_bundles=1).running() as node:
            assert await node.desk.carry(bundle), "nobody knows the originator"
            assert not len(node.carrier)
            for one in certificates(*NAMES):
                node.take_certificate(one.der)
            forged = Bundle(bundle.header, bundle.ciphertext, key("other").sign(b"x"))
            assert await node.desk.carry(forged)
            assert not len(node.carrier)
            assert await node.desk.carry(bundle)
            assert not await node.desk.carry(further), "the store is full"
            assert len(node.carrier) == 1
            topic = await _message(tmp_path)
            assert await node.desk.carry(topic), "it is for no device"
            assert len(node.carrier) == 1

    asyncio.run(scenario())


async def _message(directory: Path) -> Bundle:
    async with NodeHost("sender", directory).running([gateway().certificate]) as sender:
        await send(sender, "a/b")
        found = await sender.load(sender.sendable(10))
        return next(one for one in found if one.header.kind is Kind.MESSAGE)
