"""The agent notices that addresses or routes have changed (M3, M5)."""

import asyncio
from pathlib import Path

from edge.agent.network import NetworkWatch, network_state
from tests.unit.edge.node.node_host import eventually

ROUTE_6 = "2001000000 40 000000 00 fe80000000 00000400 {references} {uses} 00450003 eth0\n"


def test_each_change_is_told_once() -> None:
    """What cannot be read is no change."""
    states, told = [b"wifi"], []

    def state() -> bytes:
        if not states[0]:
            raise OSError("no file descriptor is free")
        return states[0]

    async def on_change() -> None:
        told.append(states[0])

    async def run() -> None:
        watch = NetworkWatch(on_change, state, poll_s=0.001)
        running = asyncio.create_task(watch.run())
        for new in (b"", b"wifi", b"", b"mobile", b"wifi"):
            await asyncio.sleep(0.02)  # what must not be told has the time to be
            states[0] = new
        await eventually(lambda: told == [b"mobile", b"wifi"], "both changes")
        assert watch.changes == 2
        running.cancel()

    asyncio.run(run())


def test_what_a_change_is(tmp_path: Path) -> None:
    """An address or a route; not that a route is used."""
    (tmp_path / "fib_trie").write_text("10.0.0.2")
    (tmp_path / "ipv6_route").write_text(ROUTE_6.format(references="00000001", uses="00000000"))
    before = network_state(tmp_path)
    (tmp_path / "ipv6_route").write_text(ROUTE_6.format(references="00000002", uses="00000009"))
    assert network_state(tmp_path) == before
    (tmp_path / "ipv6_route").write_text("")
    without = network_state(tmp_path)
    (tmp_path / "fib_trie").write_text("10.0.0.3")
    assert len({before, without, network_state(tmp_path)}) == 3


def test_this_machine_has_a_state_that_stays() -> None:
    assert network_state() == network_state()
