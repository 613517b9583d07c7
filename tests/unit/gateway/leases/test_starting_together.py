"""Shards that start together fail one by one: each is tried again by itself, and holds up no other (G4, Q7)."""

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from gateway.errors import BusError, GatewayError, ShardLost, ShardTooNew, SpoolError
from gateway.shard.session_recovery import SessionRecovery
from gateway.shard.shard_home import ShardHome
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.spool import SpoolContents
from tests.unit.gateway.leases.site import SETTLED_S, ClusterGateway, Site
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.virtual_time import run

FAULTS = [
    BusError("a partition does not answer"),
    SpoolError("the spool cannot be read: disk I/O error"),
    ShardTooNew(0, "sessions", "version 9"),
    ShardLost(0),
]


async def check(site: Site, gateway: ClusterGateway, broken: Mapping[int, GatewayError]) -> None:
    """Shard 0 has failed, the other one serves as if nothing was; once shard 0 can, it starts too."""
    others = [*range(1, SHARDS)]
    assert sorted(gateway.home.shards) == others
    assert [gateway.control.owned(shard) for shard in others] == [1] * len(others), "they started once"
    assert all(gateway.control.phase(shard) == "serving" for shard in others)
    assert isinstance(broken, dict)
    broken.clear()
    await turn(12)
    assert sorted(gateway.home.shards) == [*range(SHARDS)]
    assert [gateway.control.owned(shard) for shard in others] == [1] * len(others)
    assert not site.fatal


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_fails_as_its_epoch_begins_is_no_matter_of_others(tmp_path: Path, fault: GatewayError) -> None:
    """Q7."""

    async def scenario() -> None:
        begin, broken = SessionRecovery.begin, {0: fault}

        async def begins(recovery: SessionRecovery, home: ShardHome, *rest: object) -> None:
            if home.number in broken:
                raise broken[home.number]
            await begin(recovery, home, *rest)  # type: ignore[arg-type]

        with patch.object(SessionRecovery, "begin", begins):
            site = await Site(tmp_path).start(1)
            [gateway] = site.members
            await check(site, gateway, broken)

    run(scenario())


@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("step", ["contents", "serve"])
def test_what_fails_later_is_no_matter_of_others(tmp_path: Path, fault: GatewayError, step: str) -> None:
    """Q7: while the state is read, or when the home begins to serve."""

    async def scenario() -> None:
        contents, serve, broken = ShardSpool.contents, ShardHome.relinquish_finished, {0: fault}

        async def reads(spool: ShardSpool) -> SpoolContents:
            if step == "contents" and spool._shard in broken:
                raise broken[spool._shard]
            return await contents(spool)

        async def serves(home: ShardHome) -> None:
            if step == "serve" and home.number in broken:
                raise broken[home.number]
            await serve(home)

        with patch.object(ShardSpool, "contents", reads), patch.object(ShardHome, "relinquish_finished", serves):
            site = await Site(tmp_path).start(1)
            [gateway] = site.members
            await check(site, gateway, broken)

    run(scenario())


def test_another_gateway_claims_what_cannot_start_here(tmp_path: Path) -> None:
    """Q7: its file, or its release, is to blame; nobody waits for it."""

    async def scenario() -> None:
        begin = SessionRecovery.begin
        broken: dict[str, GatewayError] = {"gateway-0": SpoolError("disk I/O error")}

        async def begins(recovery: SessionRecovery, home: ShardHome, *rest: object) -> None:
            if home.number == 0 and (fault := broken.get(recovery._claimant.name)) is not None:
                raise fault
            await begin(recovery, home, *rest)  # type: ignore[arg-type]

        with patch.object(SessionRecovery, "begin", begins):
            site = await Site(tmp_path).start(2)
            await turn(2 * SETTLED_S + 5)
            assert site.owner_of(0).name == "gateway-1"
            assert site.owner_of(0).control.phase(0) == "serving"
        assert not site.fatal

    run(scenario())


@pytest.mark.parametrize("makes_progress", [True, False])
def test_a_long_start_keeps_its_shard_while_it_makes_progress(tmp_path: Path, makes_progress: bool) -> None:
    """Q7: much state is to be read. Whoever claimed the shard meanwhile would have to read the same."""

    async def scenario() -> None:
        begin, slow = SessionRecovery.begin, {"gateway-0"}

        async def begins(recovery: SessionRecovery, home: ShardHome, *rest: object) -> None:
            if home.number == 0 and recovery._claimant.name in slow:
                for _ in range(200):
                    await turn(0.1)
                    recovery._steps.done += makes_progress
            await begin(recovery, home, *rest)  # type: ignore[arg-type]

        with patch.object(SessionRecovery, "begin", begins):
            site = await Site(tmp_path).start(1)
            slow_one = site.members[0]
            await site.join("gateway-1")
            await turn(19.5)  # later it may move, for balance
            lease = slow_one.control.table[0]
            assert (lease.epoch == 1) == makes_progress
            assert lease.is_fenced
            assert (lease.owner == slow_one.control.me) == makes_progress
        assert not site.fatal

    run(scenario())
