"""The order in which clients try gateways (G1, G2)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.members.ranking import ConnectPoint, connect_points, ranked
from gateway.members.table import GatewayMember
from schemas.member_settings import Strategy
from schemas.members import GatewayAddress, GatewayLoad
from tests.unit.gateway.members.heartbeat_records import heartbeat

STRATEGIES: tuple[Strategy, ...] = ("connections", "cpu", "memory")

loads = st.builds(
    lambda connections, cpu, memory: GatewayLoad(connections=connections, cpu=cpu, memory=memory),
    st.integers(0, 300),
    st.floats(0, 2),
    st.floats(0, 1),
)


def members(*of: GatewayLoad) -> list[GatewayMember]:
    return [GatewayMember(f"g{n}", heartbeat(f"g{n}", load=load), 0.0) for n, load in enumerate(of)]


def order(strategy: Strategy, *of: GatewayLoad, seed: int = 0, equal_within: float = 0.1) -> list[str]:
    return [member.name for member in ranked(members(*of), strategy, equal_within, Random(seed))]


def test_the_least_loaded_is_first_by_the_strategy() -> None:
    of = (
        GatewayLoad(connections=500, cpu=0.1, memory=0.5),
        GatewayLoad(connections=20, cpu=0.9, memory=0.9),
        GatewayLoad(connections=100, cpu=0.5, memory=0.1),
    )
    assert order("connections", *of) == ["g1", "g2", "g0"]
    assert order("cpu", *of) == ["g0", "g2", "g1"]
    assert order("memory", *of) == ["g2", "g0", "g1"]


@given(
    st.lists(loads, max_size=8), st.sampled_from(STRATEGIES), st.floats(0, 1), st.integers(0, 99), st.integers(0, 99)
)
def test_everyone_is_listed_once_and_nobody_before_one_with_clearly_less(
    of: list[GatewayLoad], strategy: Strategy, equal_within: float, seed: int, other: int
) -> None:
    found = ranked(members(*of), strategy, equal_within, Random(seed))
    assert sorted(found) == sorted(members(*of))
    measured = [getattr(member.record.load, strategy) for member in found]
    for n, load in enumerate(measured):
        lower = min(measured[n:])
        margin = max(10, lower * equal_within) if strategy == "connections" else equal_within
        assert load <= lower + margin
    otherwise_known = ranked(reversed(members(*of)), strategy, equal_within, Random(seed))
    assert otherwise_known == found, "the order in which members are known does not count"
    again = ranked(members(*of), strategy, equal_within, Random(other))
    assert {member.name for member in again} == {member.name for member in found}


@pytest.mark.parametrize(
    ("strategy", "of"),
    [
        ("connections", (GatewayLoad(connections=0), GatewayLoad(connections=10), GatewayLoad(connections=4))),
        ("connections", (GatewayLoad(connections=1000), GatewayLoad(connections=1100), GatewayLoad(connections=1050))),
        ("cpu", (GatewayLoad(cpu=0.25), GatewayLoad(cpu=0.3), GatewayLoad(cpu=0.34))),
        ("memory", (GatewayLoad(memory=0.5), GatewayLoad(memory=0.59), GatewayLoad(memory=0.55))),
    ],
)
def test_near_equals_share_the_clients_evenly(strategy: Strategy, of: tuple[GatewayLoad, ...]) -> None:
    """Each is first about as often as any other: 300 draws of a fixed seed, 100 expected for each."""
    random, known = Random(7), members(*of)
    firsts = [ranked(known, strategy, 0.1, random)[0].name for _ in range(300)]
    assert all(70 <= firsts.count(member.name) <= 130 for member in known)


def test_without_a_tolerance_only_equal_shares_are_drawn() -> None:
    assert {
        tuple(order("cpu", GatewayLoad(cpu=0.2), GatewayLoad(cpu=0.1), seed=n, equal_within=0)) for n in range(20)
    } == {("g1", "g0")}
    assert (
        len(
            {tuple(order("cpu", GatewayLoad(cpu=0.2), GatewayLoad(cpu=0.2), seed=n, equal_within=0)) for n in range(20)}
        )
        == 2
    )


def test_only_members_with_the_bearer_are_connect_points() -> None:
    with_both = GatewayMember(
        "a", heartbeat(addresses={"mqtt": GatewayAddress("a.test", 1), "ws": GatewayAddress("b.test", 2)}), 0.0
    )
    with_one = GatewayMember("b", heartbeat(addresses={"mqtt": GatewayAddress("::1", 3)}), 0.0)
    assert connect_points([with_one, with_both], "mqtt") == [
        ConnectPoint("mqtt", "::1", 3),
        ConnectPoint("mqtt", "a.test", 1),
    ]
    assert connect_points([with_one, with_both], "ws") == [ConnectPoint("ws", "b.test", 2)]
    assert connect_points([with_one, with_both], "quic") == []
