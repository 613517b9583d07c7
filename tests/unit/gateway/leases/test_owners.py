"""Where a client's home is, by leases and heartbeats, and how long a client waits for one (G4, G6, G12, G14)."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.cluster.lease_table import LeaseTable
from gateway.host.homes import HomeElsewhere
from gateway.leases import owners as module
from gateway.leases.owners import WAIT_S, Owners
from gateway.members.table import MemberTable
from schemas.identity import shard_of
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys
from schemas.members import GatewayAddress
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.virtual_time import run

SHARDS = 4
ME, A, B = Claimant("me", 1), Claimant("a", 1), Claimant("b", 1)
CLIENT = "van-7"
SHARD = shard_of(CLIENT, SHARDS)


class Site:
    """The two tables, and one gateway's view of them."""

    def __init__(self) -> None:
        self.table, self.members = LeaseTable(SHARDS), MemberTable(10, 2.0)
        self.here: set[int] = set()
        self.offset = 0
        self.owners = Owners(self.table, self.members, ME, self.here.__contains__, asyncio.get_running_loop().time)

    def live(self, name: str, boot: int = 1, **fields: Any) -> None:
        fields = {"relay": GatewayAddress(f"{name}.inner", 7)} | fields
        self.members.apply(name, heartbeat(name, boot=boot, **fields), asyncio.get_running_loop().time())

    def write(self, who: Claimant, epoch: int, value: LeaseValue, shard: int = SHARD) -> None:
        key = LeaseKey("s" if isinstance(value, Standbys) else "c", shard, epoch, who)
        self.table.apply(self.offset, key, value)
        self.offset += 1
        self.owners.lease_changed(shard)

    def own(self, who: Claimant, epoch: int, *standbys: str, shard: int = SHARD) -> None:
        """It claims the shard, and serves it."""
        self.write(who, epoch, Claim(), shard)
        self.write(who, epoch, Standbys(names=list(standbys)), shard)

    def later(self, *actions: Coroutine[Any, Any, Any]) -> "list[asyncio.Task[Any]]":
        return [asyncio.create_task(one) for one in actions]


def home(name: str, epoch: int, shard: int = SHARD) -> HomeElsewhere:
    return HomeElsewhere(name, f"{name}.inner", 7, shard, epoch)


def test_the_owner_that_serves_is_the_home() -> None:
    async def scenario() -> None:
        site = Site()
        site.live("a")
        assert site.owners.elsewhere(CLIENT) is None
        site.write(A, 1, Claim())
        assert site.owners.elsewhere(CLIENT) is None, "it does not serve yet"
        site.write(A, 1, Standbys(names=[]))
        assert site.owners.elsewhere(CLIENT) == home("a", 1)
        assert not site.owners.is_here(CLIENT)
        assert (site.owners.epoch(CLIENT), site.owners.owner(CLIENT)) == (1, "a")

    run(scenario())


def test_a_shard_is_here_only_once_its_home_takes_clients() -> None:
    """And no more once another gateway has claimed it, whatever the home here believes."""

    async def scenario() -> None:
        site = Site()
        site.live("me")
        site.own(ME, 1)
        assert not site.owners.is_here(CLIENT)
        assert site.owners.elsewhere(CLIENT) is None
        site.here.add(SHARD)
        assert site.owners.is_here(CLIENT)
        site.write(B, 2, Claim())
        assert not site.owners.is_here(CLIENT)

    run(scenario())


@pytest.mark.parametrize(
    "fields",
    [{"boot": 2}, {"state": "gone"}, {"state": "joining", "addresses": {}}],
    ids=["another process", "has ended", "has not said where it is"],
)
def test_an_owner_that_is_not_there_is_no_home(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        site = Site()
        site.own(A, 1)
        assert site.owners.elsewhere(CLIENT) is None, "there is no heartbeat of it"
        site.live("a", **fields)
        assert site.owners.elsewhere(CLIENT) is None

    run(scenario())


def test_a_gateway_that_is_silent_or_drains_still_has_its_shards() -> None:
    async def scenario() -> None:
        site = Site()
        site.own(A, 1)
        site.live("a", state="draining")
        await asyncio.sleep(10)
        assert site.owners.elsewhere(CLIENT) == home("a", 1)

    run(scenario())


def test_a_gateway_that_takes_no_relayed_clients_has_port_0() -> None:
    async def scenario() -> None:
        site = Site()
        site.own(A, 1)
        site.members.apply("a", heartbeat("a"), 0.0)
        assert site.owners.elsewhere(CLIENT) == HomeElsewhere("a", "", 0, SHARD, 1)

    run(scenario())


def test_a_client_waits_for_an_owner_that_serves() -> None:
    """G6: in a takeover it is not refused. A claim is not enough."""

    async def scenario() -> None:
        site, now = Site(), asyncio.get_running_loop().time
        site.live("a")
        site.live("b")
        site.own(A, 1)
        [waiting] = site.later(site.owners.newer(CLIENT, 2))
        await asyncio.sleep(0.5)
        site.write(B, 2, Claim())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        began = now()
        site.write(B, 2, Standbys(names=[]))
        assert await waiting == home("b", 2)
        assert now() == began, "at once"
        assert site.owners.waiting == 0

    run(scenario())


def test_a_client_waits_for_the_home_here_to_start() -> None:
    async def scenario() -> None:
        site = Site()
        site.own(ME, 1)
        [waiting] = site.later(site.owners.newer(CLIENT, 0))
        await asyncio.sleep(1)
        site.here.add(SHARD)
        assert await waiting is None
        assert site.owners.is_here(CLIENT)

    run(scenario())


def test_an_address_that_comes_after_the_lease_is_found() -> None:
    async def scenario() -> None:
        site = Site()
        site.own(A, 1)
        [waiting] = site.later(site.owners.newer(CLIENT, 0))
        await asyncio.sleep(1)
        site.live("a")
        assert await waiting == home("a", 1)

    run(scenario())


def test_waiting_is_bounded_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: and leaves no timer behind."""
    monkeypatch.setattr(module, "MOST_WAITING", 2)

    async def scenario() -> None:
        site, now = Site(), asyncio.get_running_loop().time
        began = now()
        waiting = site.later(*(site.owners.newer(CLIENT, 0) for _ in range(2)))
        await asyncio.sleep(0)
        assert await site.owners.newer(CLIENT, 0) is None
        assert now() == began, "one too many"
        assert await asyncio.gather(*waiting) == [None, None]
        assert now() == pytest.approx(began + WAIT_S)
        await asyncio.sleep(1)
        assert site.owners.waiting == 0
        assert site.owners._timer is None

    run(scenario())


def test_who_stops_waiting_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        site = Site()
        [waiting] = site.later(site.owners.newer(CLIENT, 0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert site.owners.waiting == 0

    run(scenario())


def test_a_client_without_a_name_goes_to_any_shard() -> None:
    """To one here, if there is one; it is spread over the others, otherwise."""

    async def scenario() -> None:
        site = Site()
        site.live("a")
        site.live("b")
        [waiting] = site.later(site.owners.newer("", 0))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        for shard in range(SHARDS):
            site.own(A if shard % 2 else B, 1, shard=shard)
        assert (await waiting) is not None
        found = {site.owners.elsewhere("") for _ in range(2 * SHARDS)}
        assert found == {home("a" if shard % 2 else "b", 1, shard) for shard in range(SHARDS)}
        site.own(ME, 2, shard=3)
        site.here.add(3)
        assert site.owners.is_here("")
        assert site.owners.elsewhere("") is None
        assert await site.owners.newer("", 0) is None

    run(scenario())


def test_a_home_is_the_owner_until_another_claim_or_its_release() -> None:
    async def scenario() -> None:
        site = Site()
        site.live("a")
        site.own(A, 1, "b")
        at = site.owners.elsewhere(CLIENT)
        assert at is not None
        site.write(A, 1, Standbys(names=[]))
        assert site.owners.is_owner(at), "other standbys are no other owner"
        site.write(A, 2, Release(successor="b"))
        assert not site.owners.is_owner(at)

    run(scenario())


def test_a_reference_names_the_home_by_the_clients_bearer() -> None:
    """MQTT 5.0, 4.11."""

    async def scenario() -> None:
        site = Site()
        site.live("a", addresses={"mqtts": GatewayAddress("2001:db8::1", 8883), "ws": GatewayAddress("a.test", 80)})
        site.own(A, 1)
        found = {bearer: site.owners.reference(CLIENT, bearer) for bearer in ("mqtts", "ws", "mqtt")}
        assert found == {"mqtts": "[2001:db8::1]:8883", "ws": "a.test:80", "mqtt": None}
        assert site.owners.reference("", "ws") in ("a.test:80", None)

    run(scenario())


def test_a_shard_that_leaves_goes_to_its_successor_or_the_first_standby_that_is_up() -> None:
    """What clients are told while it freezes."""

    async def scenario() -> None:
        site = Site()
        site.live("me")
        site.live("a", state="draining")
        site.live("b")
        site.own(ME, 1, "a", "b")
        assert site.owners.reference(CLIENT, "mqtt") == "b.test:1000"
        site.live("a", state="up", seq=1)
        assert site.owners.reference(CLIENT, "mqtt") == "a.test:1000"
        site.write(ME, 2, Release(successor="b"))
        assert site.owners.reference(CLIENT, "mqtt") == "b.test:1000"
        await asyncio.sleep(10)
        assert site.owners.reference(CLIENT, "mqtt") is None, "nobody is up"

    run(scenario())
