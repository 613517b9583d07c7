"""Metrics of a cluster's gateway: who owns the shards, and what it has taken over (G4, G6, G14)."""

from pathlib import Path

from gateway.cluster.lease_table import LeaseTable
from gateway.observe.standby_metrics import Followed, StandbyFigures
from tests.unit.gateway.observe.observed import Observed, observed, observed_in_cluster, run_real

ME = "gateway-1"


async def states(here: Observed) -> dict[str, float]:
    found = await here.samples()
    return {labels[0]: value for (name, labels), value in found.items() if name == "waystation_shards"}


def test_a_gateway_alone_shows_nothing_of_shards_and_owners(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            names = {name for name, _ in await here.samples()}
            assert not [name for name in names if "shard" in name or "takeover" in name]

    run_real(scenario())


def test_before_the_gateway_takes_part_no_shard_seems_to_be_without_an_owner(tmp_path: Path) -> None:
    """It has not read who the owners are: no false alarm, in metrics and console."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, seen):
            seen.sources.leases = LeaseTable(0)
            here.readiness.phase = "starting"
            assert set((await states(here)).values()) == {0}
            async with here.http.get(f"{here.url}/console") as answer:
                assert answer.status == 200
                assert "Cluster</b>" not in await answer.text()
            here.readiness.phase = ""
            seen.begin()
            assert (await states(here))["no_owner"] == 2

    run_real(scenario())


def test_each_shard_is_counted_by_the_state_of_its_owner(tmp_path: Path) -> None:
    """Silent: no heartbeat for too long, none at all, a later process of the name, or its last word."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, seen):
            assert await states(here) == {"served": 0, "starting": 0, "owner_silent": 0, "no_owner": 2}
            seen.member(ME)
            seen.claim(0, 1, ME)
            assert await states(here) == {"served": 0, "starting": 1, "owner_silent": 0, "no_owner": 1}
            seen.serves(0, 1, ME)
            assert (await states(here))["served"] == 1
            seen.claim(1, 7, "b", boot=1)
            seen.serves(1, 7, "b", ME)
            assert (await states(here))["owner_silent"] == 1, "nothing was heard of it"
            seen.member("b")
            assert (await states(here))["served"] == 2
            seen.member("b", seq=1, age_s=60)
            assert (await states(here))["owner_silent"] == 1
            seen.member("b", seq=2)
            assert (await states(here))["owner_silent"] == 0
            seen.member("b", seq=3, state="gone")
            assert (await states(here))["owner_silent"] == 1
            seen.member("b", boot=2)
            assert (await states(here))["owner_silent"] == 1, "the owner was an earlier process"
            found = await here.samples()
            assert found["waystation_shard_owned", ("0",)] == 1
            assert found["waystation_shard_owned", ("1",)] == 0
            assert found["waystation_shard_epoch", ("1",)] == 7

    run_real(scenario())


def test_takeovers_are_counted_by_reason_and_the_last_one_is_timed(tmp_path: Path) -> None:
    """Only this gateway's own; both reasons are there from the start, at 0."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, seen):
            found = await here.samples()
            assert found["waystation_takeovers_total", ("planned",)] == 0
            assert found["waystation_takeovers_total", ("lost",)] == 0
            assert ("waystation_last_takeover_seconds", ()) not in found
            for shard in (0, 1):
                seen.claim(shard, 1, "b")
                seen.serves(shard, 1, "b")
            seen.claim(0, 2, ME)
            seen.release(1, 2, "b", to=ME)
            seen.claim(1, 3, ME)
            seen.claim(1, 4, "b")
            found = await here.samples()
            assert found["waystation_takeovers_total", ("planned",)] == 1
            assert found["waystation_takeovers_total", ("lost",)] == 1
            assert ("waystation_last_takeover_seconds", ()) not in found, "it does not serve yet"
            seen.serves(0, 2, ME)
            assert 0 <= (await here.samples())["waystation_last_takeover_seconds", ()] < 60

    run_real(scenario())


def test_own_shards_without_a_standby_that_is_up_are_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, seen):

            async def alone() -> float:
                return (await here.samples())["waystation_shards_without_standby", ()]

            seen.claim(0, 1, ME)
            seen.serves(0, 1, ME, "b", "c")
            seen.claim(1, 1, "b")
            seen.serves(1, 1, "b")
            assert await alone() == 1, "another gateway's shard counts there"
            seen.member("c")
            assert await alone() == 0
            seen.member("c", seq=1, state="draining")
            assert await alone() == 1
            seen.relays = 3
            assert (await here.samples())["waystation_relays", ()] == 3

    run_real(scenario())


def test_links_by_state_and_how_warm_shards_are_kept(tmp_path: Path) -> None:
    """Q6, Q7: what is not known yet has no value."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, seen):
            found = await here.samples()
            assert [found["waystation_links", (state,)] for state in ("up", "dialling", "down")] == [0, 0, 0]
            links = {"b": "up", "c": "up", "d": "down"}
            followed = {3: Followed(7, True, 0.25), 1: Followed(2_000, False, 4.0), 2: Followed(None, False)}
            seen.sources.standby_figures = lambda: StandbyFigures(links, 4, followed)
            found = await here.samples()
            assert [found["waystation_links", (state,)] for state in ("up", "dialling", "down")] == [2, 0, 1]
            assert found["waystation_link_redials_total", ()] == 4
            behind = {labels: value for (name, labels), value in found.items() if name.endswith("_behind_records")}
            assert behind == {("1",): 2_000, ("3",): 7}
            behind = {labels: value for (name, labels), value in found.items() if name.endswith("_behind_seconds")}
            assert behind == {("1",): 4.0, ("3",): 0.25}
            up = {labels: value for (name, labels), value in found.items() if name == "waystation_link_up"}
            assert up == {("b",): 1, ("c",): 1, ("d",): 0}
            warm = {labels: value for (name, labels), value in found.items() if name.endswith("standby_warm")}
            assert warm == {("1",): 0, ("2",): 0, ("3",): 1}

    run_real(scenario())
