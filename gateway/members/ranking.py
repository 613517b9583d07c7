"""The order in which a client tries gateways: the least loaded first, at random among near equals (G1, G2). Pure.

Heartbeats are a fraction of a second old, so all clients that ask meanwhile see the same figures. If each got the least
loaded gateway first, they would all go there. Therefore gateways whose loads hardly differ count as equal, and their
order is drawn anew for each answer.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from gateway.members.table import GatewayMember
from schemas.member_settings import Strategy
from schemas.members import GatewayAddress

FEW_CONNECTIONS = 10
"""Differences up to this never count: a handful of clients is no load."""


class ConnectPoint(NamedTuple):
    """Where a client may connect: the bearer as `protocol`, a host name or address, a port (G1)."""

    protocol: str
    address: str
    port: int


class _Measure(NamedTuple):
    """`of` gives a member's load; `margin` how much more counts as equal, from the lower load and `equal_within`."""

    of: Callable[[GatewayMember], float]
    margin: Callable[[float, float], float]


_MEASURES: dict[Strategy, _Measure] = {
    "connections": _Measure(
        lambda member: member.record.load.connections,
        lambda lower, equal_within: max(FEW_CONNECTIONS, lower * equal_within),
    ),
    "cpu": _Measure(lambda member: member.record.load.cpu, lambda lower, equal_within: equal_within),
    "memory": _Measure(lambda member: member.record.load.memory, lambda lower, equal_within: equal_within),
}


def ranked(
    members: Iterable[GatewayMember], strategy: Strategy, equal_within: float, random: Random
) -> list[GatewayMember]:
    """The members by load, ascending. Those within `equal_within` of the least loaded are shuffled; then those within
    it of the least loaded of the rest, and so on."""
    measure = _MEASURES[strategy]
    left = sorted(members, key=lambda member: (measure.of(member), member.name))
    found: list[GatewayMember] = []
    while left:
        lower = measure.of(left[0])
        most = lower + measure.margin(lower, equal_within)
        equals = [member for member in left if measure.of(member) <= most]
        left = left[len(equals) :]
        random.shuffle(equals)
        found += equals
    return found


def connect_points(members: Iterable[GatewayMember], bearer: str) -> list[ConnectPoint]:
    """Where these members are reached by `bearer`, in their order; without those that cannot be."""
    addresses: list[GatewayAddress | None] = [member.record.addresses.get(bearer) for member in members]
    return [ConnectPoint(bearer, found.address, found.port) for found in addresses if found is not None]
