"""Which member should own which shard, and which should be its standbys (G2, G14, Q3). Pure.

Rendezvous hashing (Thaler and Ravishankar, 1998), weighted (Schindelhauer and Schomaker, 2005): each shard ranks all
members by a hash, so members come and go without changing the order of the others. The ranking says who takes a shard
that has lost its owner, who its standbys are, and which of several shards moves.

Balance does not come from the hash: 16 shards on three gateways would often be 8, 5 and 3. A shard stays where it is
until the owner's share exceeds another member's by more than one shard, and by more than `hysteresis`; then one moves.
So a lost member costs only the moves of its own shards, a new one gets its share and nothing else moves, and loads that
swing a little move nothing.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

HYSTERESIS = 0.2
"""The part of a member's fair share by which two shares must differ before a shard moves."""

BUSY_CPU = 0.8
"""Members that use more of a core get no shards from others."""


class Candidate(NamedTuple):
    """A member that may own shards. `weight`: its capacity in relation to others, above 0; `cpu`: as in
    :class:`schemas.members.GatewayLoad`."""

    name: str
    zone: str = ""
    weight: float = 1.0
    cpu: float = 0.0


class Move(NamedTuple):
    """`shard` should go from the member `owner` to the member `to`."""

    shard: int
    owner: str
    to: str


def ranking(shard: int, members: Collection[Candidate]) -> list[Candidate]:
    """The members in the order in which they should take the shard."""
    return sorted(members, key=lambda member: (-_score(shard, member), member.name))


def standbys(shard: int, owner: str, members: Collection[Candidate], count: int) -> list[str]:
    """At most `count` members to keep the shard warm, by rank; those in other zones than the owner's come first. Never
    the owner."""
    zone = next((member.zone for member in members if member.name == owner), None)
    others = [member for member in ranking(shard, members) if member.name != owner]
    others.sort(key=lambda member: member.zone == zone)  # stable: by rank within each half
    return [member.name for member in others[:count]]


def moves(
    owners: Mapping[int, str],
    members: Collection[Candidate],
    most: int,
    loads: Mapping[int, float] | None = None,
    hysteresis: float = HYSTERESIS,
) -> list[Move]:
    """The next moves towards balance, at most `most`; none if the shares hardly differ.

    `owners`: the owner of each shard that has one. Shards of owners that are not among the `members` stay where they
    are: whoever leaves releases them, and whoever is lost loses them. `loads`: of each shard, above 0, in any unit;
    without it each counts 1.
    """
    weight = {member.name: member.weight for member in members}
    cpu = {member.name: member.cpu for member in members}
    of = {shard: owner for shard, owner in owners.items() if owner in weight}
    load = {shard: 1.0 if loads is None else loads.get(shard, 1.0) for shard in of}
    share = dict.fromkeys(weight, 0.0)
    for shard, owner in of.items():
        share[owner] += load[shard] / weight[owner]
    found: list[Move] = []
    while len(found) < most:
        move = _next_move(of, weight, cpu, load, share, hysteresis)
        if move is None:
            break
        found.append(move)
        of[move.shard] = move.to
        share[move.owner] -= load[move.shard] / weight[move.owner]
        share[move.to] += load[move.shard] / weight[move.to]
    return found


def _next_move(
    of: Mapping[int, str],
    weight: Mapping[str, float],
    cpu: Mapping[str, float],
    load: Mapping[int, float],
    share: Mapping[str, float],
    hysteresis: float,
) -> Move | None:
    """From the member with the largest share that can spare a shard to the one with the smallest that may get one."""
    takers = sorted((name for name in share if cpu[name] <= BUSY_CPU), key=lambda name: (share[name], name))
    if not takers:
        return None
    to, fair = takers[0], sum(load.values()) / sum(weight.values())
    for owner in sorted(share, key=lambda name: (-share[name], name)):
        if share[owner] - share[to] <= hysteresis * fair:
            return None
        movable = [shard for shard in of if of[shard] == owner and _helps(load[shard], owner, to, weight, share)]
        if movable:
            shard = min(movable, key=lambda shard: (-_score(shard, Candidate(to, weight=weight[to])), shard))
            return Move(shard, owner, to)
    return None


def _helps(load: float, owner: str, to: str, weight: Mapping[str, float], share: Mapping[str, float]) -> bool:
    """Whether the larger of the two shares is smaller after the move: otherwise it would only swap them."""
    return share[to] + load / weight[to] < share[owner] - 1e-9


def rank_of(name: str, order: Sequence[str]) -> int | None:
    """The place of a member in an order, from 0; None if it is not in it."""
    return order.index(name) if name in order else None


def _score(shard: int, member: Candidate) -> float:
    """The higher, the better; with two members the chance to win is proportional to the weight."""
    digest = hashlib.blake2b(f"{shard}/{member.name}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest) + 1) / (2**64 + 2)  # above 0 and below 1
    return -member.weight / math.log(uniform)
