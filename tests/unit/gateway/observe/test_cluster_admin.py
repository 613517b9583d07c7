"""The admin API of a cluster: what it shows of gateways and shards, and what it begins or refuses (G4, G14)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.lease_table import LeaseTable
from gateway.errors import GatewayError
from gateway.members.table import MemberTable
from gateway.observe.cluster_admin import ClusterView
from gateway.observe.standby_metrics import Followed
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys
from schemas.members import GatewayAddress, GatewayLoad, Heartbeat, MemberState
from tests.unit.gateway.observe.observed import Observed, observed, run_real

SHARDS = 4
NO_CLUSTER = "this gateway is not in a cluster: gateway.cluster.enabled is false"


class Control:
    """The leases of `gw-1`. `refusal` is what it says to commands, "" if it does as asked; `asked` are those."""

    def __init__(self) -> None:
        self.table = LeaseTable(SHARDS)
        self.asked: list[tuple[Any, ...]] = []
        self.refusal = ""
        self._offset = 0

    def phase(self, shard: int) -> str:
        owner = self.table[shard].owner
        return "serving" if owner is not None and owner.name == "gw-1" else "idle"

    def move(self, shard: int, to: str) -> None:
        self._take("move", shard, to)

    def drain(self) -> None:
        self._take("drain")

    def _take(self, *command: Any) -> None:
        if self.refusal:
            raise GatewayError(self.refusal)
        self.asked.append(command)

    def write(self, shard: int, epoch: int, name: str, value: LeaseValue) -> None:
        kind = "s" if isinstance(value, Standbys) else "c"
        self.table.apply(self._offset, LeaseKey(kind, shard, epoch, Claimant(name, 1)), value)
        self._offset += 1


class Clustered:
    """A gateway `gw-1` of a cluster with `gw-2`. `now` is the time by which members are judged."""

    def __init__(self, here: Observed) -> None:
        self.here = here
        self.control = Control()
        self.members = MemberTable(10, 2.0)
        self.now = 100.0
        for name in ("gw-1", "gw-2"):
            self.beat(name, "up")
        for shard, owner, standby in ((0, "gw-1", "gw-2"), (1, "gw-2", "gw-1"), (2, "gw-1", "gw-2")):
            self.control.write(shard, 1, owner, Claim())
            self.control.write(shard, 1, owner, Standbys(names=[standby]))
        here.observer.cluster = ClusterView(
            "gw-1", self.control, self.members, lambda: self.now, lambda: {1: Followed(3, True, 0.5)}
        )

    def beat(self, name: str, state: MemberState, seq: int = 1) -> None:
        addresses = {"mqtt": GatewayAddress("::1", 1883)}
        load = GatewayLoad(connections=3, cpu=0.5)
        record = Heartbeat(boot=7, seq=seq, state=state, at_us=0, zone="rack-1", addresses=addresses, load=load)
        self.members.apply(name, record, self.now)

    async def post(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self.here.request("POST", path, **options)


@asynccontextmanager
async def clustered(directory: Path) -> AsyncIterator[Clustered]:
    async with observed(directory) as here:
        yield Clustered(here)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/gateways"),
        ("GET", "/admin/shards"),
        ("POST", "/admin/shards/0/move?to=gw-2"),
        ("POST", "/admin/drain"),
    ],
)
def test_a_gateway_that_is_in_no_cluster_says_so(tmp_path: Path, method: str, path: str) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            assert await here.request(method, path) == (404, {"error": NO_CLUSTER})

    run_real(scenario())


def test_the_gateways_with_their_load_and_shards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            status, answer = await this.here.get("/admin/gateways")
            assert (status, answer["gateway"]) == (200, "gw-1")
            first, second = answer["gateways"]
            assert (first["name"], first["state"], first["zone"], first["boot"]) == ("gw-1", "up", "rack-1", 7)
            assert first["addresses"] == {"mqtt": "[::1]:1883"}
            assert (first["load"]["connections"], first["load"]["cpu"]) == (3, 0.5)
            assert (first["shards"], first["standby_of"]) == ([0, 2], [1])
            assert (second["shards"], second["standby_of"]) == ([1], [0, 2])

    run_real(scenario())


def test_a_gateway_without_heartbeats_is_silent_and_so_is_one_that_only_leases_name(tmp_path: Path) -> None:
    """Its shards are shown until somebody else owns them."""

    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            this.now += 60.0
            this.beat("gw-1", "up", seq=2)
            this.control.write(3, 1, "lost", Claim())
            answer = (await this.here.get("/admin/gateways"))[1]
            states = {one["name"]: (one["state"], one["shards"]) for one in answer["gateways"]}
            assert states == {"gw-1": ("up", [0, 2]), "gw-2": ("silent", [1]), "lost": ("silent", [3])}

    run_real(scenario())


def test_the_shards_with_owner_epoch_standbys_and_phase(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            this.control.write(2, 2, "gw-1", Release(successor="gw-2"))
            status, answer = await this.here.get("/admin/shards")
            assert status == 200
            own, other, released, none = answer["shards"]
            assert (own["shard"], own["owner"], own["epoch"], own["state"]) == (0, "gw-1", 1, "owned")
            assert (own["standbys"], own["is_fenced"], own["phase"]) == (["gw-2"], True, "serving")
            assert (other["owner"], other["phase"]) == ("gw-2", "idle")
            assert own["lag"] is None
            assert other["lag"] == {"is_warm": True, "behind_records": 3, "behind_s": 0.5}
            assert (released["owner"], released["state"], released["epoch"]) == (None, "released", 2)
            assert (released["released_by"], released["successor"]) == ("gw-1", "gw-2")
            assert (none["owner"], none["state"], none["epoch"], none["standbys"]) == (None, "none", 0, [])

    run_real(scenario())


def test_a_move_begins_at_the_owner(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            status, answer = await this.post("/admin/shards/0/move", params={"to": "gw-2"})
            assert (status, answer) == (202, {"shard": 0, "owner": "gw-1", "epoch": 1, "to": "gw-2"})
            assert this.control.asked == [("move", 0, "gw-2")]

    run_real(scenario())


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/admin/shards/1/move?to=gw-1", 409, "gw-2 owns shard 1: ask it"),
        ("/admin/shards/0/move?to=gw-1", 409, "gw-1 owns shard 0 already"),
        ("/admin/shards/3/move?to=gw-2", 409, "nobody owns shard 3 at this moment: try again"),
        ("/admin/shards/0/move?to=gw-9", 409, "gw-9 is no gateway that is up; others that are: gw-2"),
        ("/admin/shards/4/move?to=gw-2", 404, "there is no such shard: they are 0 to 3"),
        ("/admin/shards/-1/move?to=gw-2", 404, "there is no such shard: they are 0 to 3"),
        ("/admin/shards/%C2%B2/move?to=gw-2", 404, "there is no such shard: they are 0 to 3"),
        ("/admin/shards/" + "9" * 5000 + "/move?to=gw-2", 404, "there is no such shard: they are 0 to 3"),
        ("/admin/shards/0/move", 400, "the parameter `to` is missing: ?to=<name of a gateway>"),
        ("/admin/shards/0/move?from=gw-2", 400, "unknown parameter 'from'; allowed: to"),
        ("/admin/drain?now=1", 400, "unknown parameter 'now'; allowed: none"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(tmp_path: Path, path: str, status: int, sentence: str) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            assert await this.post(path) == (status, {"error": sentence})
            assert this.control.asked == []

    run_real(scenario())


def test_a_gateway_that_drains_or_is_silent_gets_no_shard(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            this.beat("gw-2", "draining", seq=2)
            status, answer = await this.post("/admin/shards/0/move?to=gw-2")
            assert (status, answer["error"]) == (409, "gw-2 is no gateway that is up; others that are: none")
            status, answer = await this.post("/admin/drain")
            assert (status, answer["error"]) == (409, "no other gateway is up that could take the shards")
            this.beat("gw-2", "up", seq=3)
            this.now += 60.0
            assert (await this.post("/admin/drain"))[0] == 409
            assert this.control.asked == []

    run_real(scenario())


def test_a_drain_begins_and_may_be_asked_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            assert await this.post("/admin/drain") == (202, {"gateway": "gw-1", "shards": [0, 2]})
            for shard in (0, 2):
                this.control.write(shard, 2, "gw-2", Claim())
            assert await this.post("/admin/drain") == (202, {"gateway": "gw-1", "shards": []})
            assert this.control.asked == [("drain",), ("drain",)]

    run_real(scenario())


def test_what_the_leases_refuse_is_passed_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            this.control.refusal = "the leases are not read yet"
            for path in ("/admin/drain", "/admin/shards/0/move?to=gw-2"):
                assert await this.post(path) == (409, {"error": "the leases are not read yet"})

    run_real(scenario())


def test_a_page_in_a_browser_cannot_move_shards(tmp_path: Path) -> None:
    """It may send POST to this machine without asking first, but always says where it comes from."""

    async def scenario() -> None:
        async with clustered(tmp_path) as this:
            for path in ("/admin/drain", "/admin/shards/0/move?to=gw-2"):
                for origin in ("https://strange.example", "null"):
                    assert (await this.post(path, headers={"Origin": origin}))[0] == 403
            assert (await this.here.get("/admin/drain"))[0] == 405
            assert this.control.asked == []

    run_real(scenario())


def test_who_may_ask_is_decided_as_for_sessions(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef-not-a-real-one")

    async def scenario() -> None:
        async with observed(tmp_path, admin_token_file=str(file)) as here:
            this = Clustered(here)
            assert (await here.get("/admin/shards"))[0] == 401
            assert (await this.post("/admin/drain"))[0] == 401
            assert (await this.post("/admin/drain", headers={"Authorization": f"Bearer {file.read_text()}"}))[0] == 202

    run_real(scenario())
