"""Peers in the local network find each other (M5)."""

import asyncio
from pathlib import Path

import pytest

from edge.node.discovery import Discovery, machine_addresses
from edge.node.errors import DiscoveryError
from tests.draw import long_test
from tests.unit.edge.node.node_host import NodeHost, certificates, eventually, send

LOOPBACK = ["127.0.0.1"]


def test_two_nodes_find_each_other(tmp_path: Path) -> None:
    """M5: without any address in the settings."""

    async def run() -> None:
        a, b = (NodeHost(name, tmp_path, discovery=True) for name in "ab")
        async with a.running(certificates("b")) as one, b.running(certificates("a")) as other:
            await eventually(lambda: "b" in one.contacts and "a" in other.contacts, "a contact")
            sent = await send(one, "@b")
            await eventually(lambda: a.receipts == [sent], "the receipt")

    asyncio.run(run())


@long_test
def test_who_comes_goes_and_moves_is_noticed() -> None:
    """M5: and an agent hears others after its network has changed (zeroconf#976)."""

    async def run() -> None:
        found: dict[tuple[str, int], str] = {}
        addresses = frozenset(LOOPBACK)
        one = Discovery(
            *("a", 1, lambda address, name: found.update({address: name}), lambda address: found.pop(address, None)),
            interfaces=LOOPBACK,
            addresses=lambda: addresses,
        )
        await one.open()
        other = Discovery("b ü", 7_000, lambda *_: None, lambda _: None, interfaces=LOOPBACK)
        await other.open()
        await eventually(lambda: found == {("127.0.0.1", 7_000): "b ü"}, "b is found")
        await one.update()
        await other.close()
        await eventually(lambda: not found, "b has gone")
        third = Discovery("c", 8_000, lambda *_: None, lambda _: None, interfaces=LOOPBACK)
        await third.open()
        await eventually(lambda: found == {("127.0.0.1", 8_000): "c"}, "c is found")
        await third.close()
        await one.close()

    asyncio.run(run())


def test_without_a_network_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """M5: a device may start before its network does."""
    monkeypatch.setattr("edge.node.discovery.INTERFACES_S", 0.0)
    attempts = []

    def fail(**_: object) -> None:
        attempts.append(1)
        raise OSError("no network")

    monkeypatch.setattr("edge.node.discovery.AsyncZeroconf", fail)

    async def run() -> None:
        discovery = Discovery("a", 1, lambda *_: None, lambda _: None)
        with pytest.raises(DiscoveryError, match="no network"):
            await discovery.open()
        running = asyncio.create_task(discovery.run())
        await eventually(lambda: len(attempts) > 3, "some attempts")
        running.cancel()
        await discovery.close()

    asyncio.run(run())
    assert not any(address.startswith("127.") for address in machine_addresses())
