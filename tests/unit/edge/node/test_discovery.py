"""Peers in the local network find each other (M5)."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from zeroconf import ServiceStateChange, Zeroconf

import edge.node.discovery as discovery_module
from edge.node.discovery import FOUND_MAX, Discovery, machine_addresses
from edge.node.errors import DiscoveryError
from tests.draw import long_test
from tests.unit.edge.node.node_host import NodeHost, certificates, eventually, send

LOOPBACK = ["127.0.0.1"]
SERVICE = discovery_module.SERVICE


def never(address: tuple[str, int]) -> bool:
    """No agent has answered."""
    return False


class Announced:
    """What is announced under a name: `name|host|port`. Of those that begin with `silent` nobody says where."""

    def __init__(self, _: str, name: str) -> None:
        peer, self.host, self.port = name.split("|")[0], name.split("|")[1], int(name.split("|")[2])
        self.decoded_properties = {"v": "1", "name": peer}

    async def async_request(self, *_: object) -> bool:
        if self.decoded_properties["name"].startswith("silent"):
            await asyncio.Event().wait()
        return True

    def parsed_addresses(self, _: object) -> list[str]:
        return [self.host]


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
            *(
                "a",
                1,
                lambda address, name: found.update({address: name}),
                lambda address: found.pop(address, None),
                never,
            ),
            interfaces=LOOPBACK,
            addresses=lambda: addresses,
        )
        await one.open()
        other = Discovery("b ü", 7_000, lambda *_: None, lambda _: None, never, interfaces=LOOPBACK)
        await other.open()
        await eventually(lambda: found == {("127.0.0.1", 7_000): "b ü"}, "b is found")
        await one.update()
        await other.close()
        await eventually(lambda: not found, "b has gone")
        third = Discovery("c", 8_000, lambda *_: None, lambda _: None, never, interfaces=LOOPBACK)
        await third.open()
        await eventually(lambda: found == {("127.0.0.1", 8_000): "c"}, "c is found")
        await third.close()
        await one.close()

    asyncio.run(run())


def test_addresses_that_cannot_be_read_end_nothing() -> None:
    """The system needs a file descriptor for them, and there may be none just then."""

    async def run() -> None:
        found: frozenset[str] | None = frozenset(LOOPBACK)

        def addresses() -> frozenset[str]:
            if found is None:
                raise OSError(24, "Too many open files")
            return found

        one = Discovery("a", 1, lambda *_: None, lambda _: None, never, interfaces=LOOPBACK, addresses=addresses)
        await one.open()
        found = None
        await one.check()
        await one.update()
        found = frozenset(("10.0.0.7",))
        await one.check()
        assert one._announced == {"10.0.0.7"}
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
        discovery = Discovery("a", 1, lambda *_: None, lambda _: None, never)
        with pytest.raises(DiscoveryError, match="no network"):
            await discovery.open()
        running = asyncio.create_task(discovery.run())
        await eventually(lambda: len(attempts) > 3, "some attempts")
        running.cancel()
        await discovery.close()

    asyncio.run(run())
    assert not any(address.startswith("127.") for address in machine_addresses())


def test_forged_announcements_keep_no_peer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """M5: anybody in the network may announce anything. Where no agent has answered gives way, the oldest first; so
    does what announces an address of another."""
    monkeypatch.setattr(discovery_module, "AsyncServiceInfo", Announced)
    real = ("10.0.0.1", 4_660)

    async def run() -> None:
        found: dict[tuple[str, int], str] = {}
        answered: set[tuple[str, int]] = set()
        discovery = Discovery(
            *("a", 1, lambda address, name: found.update({address: name}), lambda address: found.pop(address, None)),
            answered.__contains__,
        )

        async def announce(*names: str, change: ServiceStateChange = ServiceStateChange.Added) -> None:
            for name in names:
                discovery._changed(cast(Zeroconf, None), SERVICE, name, change)
            for _ in range(3):
                await asyncio.sleep(0)

        await announce("real|10.0.0.1|4660")
        answered.add(real)
        await announce(*(f"silent-{number}|10.0.0.2|1" for number in range(2 * FOUND_MAX)))
        await announce(*(f"same-{number}|10.0.0.1|4660" for number in range(FOUND_MAX)))
        await announce(*(f"forged-{number}|10.0.0.3|{number + 1}" for number in range(2 * FOUND_MAX)))
        assert len(found) <= FOUND_MAX
        assert real in found, "an agent has answered there"
        await announce("late|10.0.0.4|4660")
        assert found["10.0.0.4", 4_660] == "late"
        assert ("10.0.0.3", 2 * FOUND_MAX) in found, "the oldest gave way"
        await announce("same-0|10.0.0.1|4660", change=ServiceStateChange.Removed)
        assert real in found
        answered.update(found)
        await announce("later|10.0.0.5|4660")
        assert ("10.0.0.5", 4_660) not in found, "all have answered"
        for task in list(discovery._resolving):
            task.cancel()

    asyncio.run(run())
