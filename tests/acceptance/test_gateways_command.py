"""Three gateways as an operator runs them: look, move a shard, drain, replace, and go back to one (G4, G14, R5).

No Spark: nothing is routed, and nothing of that is looked at here. Sessions are the gateways' own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import Client, Stack
from tests.draw import killed_or_replaced
from tests.waiting import wait_for

GATEWAYS = ["gateway-1", "gateway-2", "gateway-3"]
CLIENTS = 8
SETTLE_S = 120.0
"""Until shards are spread: they move one by one, on a machine that does other things too."""

pytestmark = [killed_or_replaced, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[Stack]:
    overrides = {"JAVA_HOME": str(java_home), "WAYSTATION_STACK__START_TIMEOUT_S": "200"}
    stack = Stack(tmp_path_factory.mktemp("cluster"), overrides)
    try:
        up(stack, "--gateways", "3")
        yield stack
    finally:
        stack.down()


def up(stack: Stack, *arguments: str) -> None:
    stack.waystation("up", "--detach", "--free-ports", "--only", "gateway", *arguments)


def asked(stack: Stack, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(stack.waystation(what, "--json").stdout)[what]
    return found


def owners(stack: Stack) -> list[str | None]:
    """The owner of each shard, None while it does not serve it."""
    return [one["owner"] if one["phase"] == "serving" else None for one in asked(stack, "shards")]


def await_owners(stack: Stack, names: list[str]) -> None:
    """Waits until these gateways serve all shards, each of them at least one."""
    wait_for(lambda: set(owners(stack)) == set(names), f"{', '.join(names)} serve all shards", SETTLE_S)


def pids(stack: Stack) -> dict[str, int]:
    return {process.name: process.pid for process in stack.state.processes}


@pytest.fixture(scope="module")
def sessions(cluster: Stack) -> set[str]:
    """Sessions that are to survive all that follows. Which gateway has them is not the clients' business."""
    await_owners(cluster, GATEWAYS)
    names = {f"client-{number}" for number in range(CLIENTS)}
    for name in names:
        client = Client(cluster, name).connect()
        client.subscribe("a/#", 1)
        client.disconnect()
    return names


def listed(stack: Stack) -> set[str]:
    return {one["client"] for one in json.loads(stack.waystation("sessions", "--json").stdout)["sessions"]}


def test_each_gateway_has_listeners_and_shards_of_its_own(cluster: Stack, sessions: set[str]) -> None:
    found = {one["name"]: one for one in asked(cluster, "gateways")}
    assert sorted(found) == GATEWAYS
    assert {one["state"] for one in found.values()} == {"up"}
    own = {one["addresses"]["mqtt"] for one in found.values()}
    assert len(own | {cluster.state.listeners["mqtt"]}) == 4, "that of the dispatcher is none of theirs"
    shards = asked(cluster, "shards")
    assert sorted(n for one in found.values() for n in one["shards"]) == [one["shard"] for one in shards]
    wait_for(lambda: all(one["standbys"] for one in asked(cluster, "shards")), "each shard has a standby", SETTLE_S)
    status = json.loads(cluster.waystation("status", "--json").stdout)
    assert [(one["name"], one["ready"]) for one in status["gateways"]] == [(name, True) for name in GATEWAYS]
    assert listed(cluster) >= sessions


def test_a_shard_is_moved_to_the_gateway_named(cluster: Stack, sessions: set[str]) -> None:
    await_owners(cluster, GATEWAYS)
    before = asked(cluster, "shards")[0]
    to = next(name for name in GATEWAYS if name != before["owner"])
    said = cluster.waystation("shard", "move", "0", to).stdout
    assert f"shard 0: {to} owns it, epoch" in said
    assert listed(cluster) >= sessions


def test_a_drained_gateway_has_no_shard_until_it_is_replaced(cluster: Stack, sessions: set[str]) -> None:
    await_owners(cluster, GATEWAYS)
    said = cluster.waystation("gateway", "drain", "gateway-2").stdout
    assert said.splitlines()[-1] == "gateway-2: no shards left"
    assert set(owners(cluster)) <= {"gateway-1", "gateway-3", None}
    before = pids(cluster)
    cluster.waystation("gateway", "replace", "gateway-2")
    now = pids(cluster)
    assert {name for name in now if now[name] != before[name]} == {"gateway-2"}
    await_owners(cluster, GATEWAYS)
    assert listed(cluster) >= sessions


def test_all_gateways_are_replaced_one_by_one_and_no_session_is_lost(cluster: Stack, sessions: set[str]) -> None:
    """R5: a client connects again, at whichever gateway, and finds its session."""
    await_owners(cluster, GATEWAYS)
    before = pids(cluster)
    cluster.waystation("gateway", "replace", timeout_s=600)
    now = pids(cluster)
    replaced = {name for name in now if now[name] != before[name]}
    assert replaced == {"gateway", "gateway-2", "gateway-3", "dispatcher"}
    assert listed(cluster) >= sessions
    for name in sorted(sessions):
        Client(cluster, name).connect().disconnect()


def test_a_gateway_that_is_killed_is_missed_and_comes_back(cluster: Stack, sessions: set[str]) -> None:
    await_owners(cluster, GATEWAYS)
    cluster.kill("gateway-3")
    await_owners(cluster, GATEWAYS)
    assert listed(cluster) >= sessions


def test_one_gateway_takes_over_what_three_have_left(cluster: Stack, sessions: set[str]) -> None:
    """The last test of this stack: started again with one gateway, which gets all shards, and then with three."""
    cluster.waystation("down")
    up(cluster)
    await_owners(cluster, ["gateway-1"])
    assert listed(cluster) >= sessions
    refused = cluster.waystation("gateway", "drain", "gateway-1", check=False)
    assert (refused.returncode, "no other gateway is up" in refused.stderr) == (1, True)
    cluster.waystation("down")
    up(cluster, "--gateways", "3")
    await_owners(cluster, GATEWAYS)
    assert listed(cluster) >= sessions
