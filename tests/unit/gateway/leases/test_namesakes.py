"""Two processes under one name do not run side by side (G4, G14)."""

import asyncio

import pytest

from gateway.errors import ClusterError
from gateway.leases.namesakes import Namesakes
from gateway.members.table import GatewayMember
from schemas.leases import Claimant
from schemas.members import MemberState
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.virtual_time import run

ME = Claimant("a", 5)
SILENT_S = 0.6


class Process:
    """A process that has found a record of `state` under its name, None for none."""

    def __init__(self, state: MemberState | None = "up") -> None:
        earlier = None if state is None else GatewayMember("a", heartbeat(boot=4, state=state), None)
        self.fatal = list[Exception]()
        self.began = asyncio.get_running_loop().time()
        self.namesakes = Namesakes(ME, earlier, SILENT_S, self.fatal.append)

    def hears(self, name: str, boot: int, state: MemberState = "up") -> None:
        self.namesakes.heard(name, heartbeat(boot=boot, state=state))

    async def waited_s(self) -> float:
        await self.namesakes.alone()
        return asyncio.get_running_loop().time() - self.began


def test_the_first_process_and_one_behind_an_orderly_end_do_not_wait() -> None:
    async def scenario() -> None:
        for state in (None, "gone"):
            assert await Process(state).waited_s() == 0  # type: ignore[arg-type]

    run(scenario())


def test_a_process_waits_until_the_silence_of_the_one_before_tells() -> None:
    """Heartbeats of others, its own, and a last word say nothing. What has passed since its beginning counts."""

    async def scenario() -> None:
        process = Process()
        process.hears("b", 4)
        process.hears("a", ME.boot)
        process.hears("a", 4, "gone")
        await asyncio.sleep(SILENT_S / 2)
        assert await process.waited_s() == pytest.approx(SILENT_S)
        assert await process.waited_s() == pytest.approx(SILENT_S)
        assert process.fatal == []

    run(scenario())


@pytest.mark.parametrize("state", ["joining", "up", "draining"])
def test_a_process_does_not_join_beside_an_earlier_one_that_lives(state: MemberState) -> None:
    async def scenario() -> None:
        process = Process()
        asyncio.get_running_loop().call_later(SILENT_S / 2, process.hears, "a", 4, state)
        with pytest.raises(ClusterError, match="a gateway with the name a is running already"):
            await process.namesakes.alone()
        assert process.fatal == []

    run(scenario())


@pytest.mark.parametrize("state", ["joining", "gone"])
def test_a_process_ends_when_a_later_one_has_its_name(state: MemberState) -> None:
    """Everybody takes it for dead from then on, also if the later one has ended by now."""

    async def scenario() -> None:
        process = Process(None)
        process.hears("b", 6)
        assert process.fatal == []
        process.hears("a", 6, state)
        [error] = process.fatal
        assert "another process has started as the gateway a" in str(error)

    run(scenario())
