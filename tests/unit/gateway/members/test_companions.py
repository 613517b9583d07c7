"""Gateways that do not fit together do not run side by side (G4, G14)."""

import asyncio
from collections.abc import Mapping

import pytest

from gateway.errors import ClusterError
from gateway.members.companions import SILENT_BEATS, Companions
from gateway.members.table import MemberTable
from schemas.members import Heartbeat, MemberState
from schemas.settings import process_settings
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.virtual_time import run

BOOT = 5
ALONE = process_settings({}).gateway.cluster
SHARES = process_settings({"WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true"}).gateway.cluster
SILENT_S = SILENT_BEATS * ALONE.heartbeat_s


def of(boot: int = 4, state: MemberState = "up", *, shares: bool = True) -> Heartbeat:
    return heartbeat(boot=boot, state=state, shares=shares)


class Process:
    """A process of the gateway `a` that has found these records; `has_begun`: it has its number."""

    def __init__(
        self, *, shares: bool = True, found: Mapping[str, Heartbeat] | None = None, has_begun: bool = False
    ) -> None:
        members = MemberTable(10, 2.0)
        for name, record in (found or {}).items():
            members.apply(name, record, None)
        self.fatal = list[Exception]()
        self.began = asyncio.get_running_loop().time()
        self.companions = Companions("a", SHARES if shares else ALONE, members, self.fatal.append)
        if has_begun:
            self.companions.begin(BOOT)

    async def waited_s(self) -> float:
        await self.companions.alone()
        return asyncio.get_running_loop().time() - self.began


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        (True, {}),
        (True, {"a": of(state="gone"), "b": of(), "c": of(state="gone", shares=False)}),
        (False, {}),
        (False, {"a": of(shares=False), "b": of(state="gone")}),
    ],
)
def test_who_finds_nothing_that_would_not_fit_does_not_wait(shares: bool, found: dict[str, Heartbeat]) -> None:
    async def scenario() -> None:
        assert await Process(shares=shares, found=found).waited_s() == 0

    run(scenario())


@pytest.mark.parametrize(
    ("shares", "name", "record"),
    [
        (True, "a", of(state="joining")),
        (True, "a", of(state="draining")),
        (True, "b", of(shares=False)),
        (False, "b", of(shares=False)),
        (False, "b", of()),
    ],
)
def test_who_would_not_fit_is_waited_for_and_does_not_let_this_one_join(
    shares: bool, name: str, record: Heartbeat
) -> None:
    """Its silence tells that it does not live. Last words, and gateways that fit, say nothing."""

    async def scenario() -> None:
        process = Process(shares=shares, found={name: record})
        process.companions.heard(name, of(state="gone"))
        if shares:
            process.companions.heard("c", of())
        await asyncio.sleep(SILENT_S / 2)
        assert await process.waited_s() == pytest.approx(SILENT_S)
        process = Process(shares=shares, found={name: record})
        asyncio.get_running_loop().call_later(SILENT_S / 2, process.companions.heard, name, record)
        with pytest.raises(ClusterError, match=f"name {name} is running|gateway {name} is running already, and"):
            await process.companions.alone()
        assert process.fatal == []

    run(scenario())


def test_who_is_heard_before_this_one_has_its_number_does_not_let_it_join_either() -> None:
    async def scenario() -> None:
        process = Process(shares=False)
        await process.companions.alone()
        process.companions.heard("b", of())
        with pytest.raises(ClusterError, match="this one does not share its shards"):
            process.companions.begin(BOOT)

    run(scenario())


@pytest.mark.parametrize(
    ("shares", "name", "record", "reason"),
    [
        (True, "a", of(boot=6, state="joining"), "another process has started as the gateway a"),
        (True, "a", of(boot=6, state="gone"), "another process has started as the gateway a"),
        (True, "b", of(boot=4, shares=False), "the gateway b is running already, and it does not share its shards"),
        (False, "b", of(boot=4), "the gateway b is running already, and this one does not share its shards"),
        (False, "a", of(boot=4, shares=False), "a gateway with the name a is running already"),
    ],
)
def test_a_process_that_has_begun_ends_beside_these(shares: bool, name: str, record: Heartbeat, reason: str) -> None:
    async def scenario() -> None:
        process = Process(shares=shares, has_begun=True)
        process.companions.heard(name, record)
        [error] = process.fatal
        assert reason in str(error)

    run(scenario())


@pytest.mark.parametrize(
    ("shares", "name", "record"),
    [
        (True, "a", of(boot=BOOT)),
        (True, "a", of(boot=4)),
        (True, "b", of(boot=4)),
        (True, "b", of(boot=6)),
        (True, "b", of(boot=6, shares=False)),
        (True, "b", of(boot=4, state="gone", shares=False)),
        (False, "a", of(boot=6, shares=False)),
        (False, "b", of(boot=6)),
    ],
)
def test_a_process_that_has_begun_goes_on_beside_these(shares: bool, name: str, record: Heartbeat) -> None:
    """They fit, or they are the ones that end."""

    async def scenario() -> None:
        process = Process(shares=shares, has_begun=True)
        process.companions.heard(name, record)
        assert process.fatal == []

    run(scenario())
