"""Whether each shard has an owner that serves it, as far as this gateway has read `leases` and `members` (G4, G14).
Pure: the time comes in.

This is for people and alerts, and nothing is decided by it. Members claim shards by :mod:`gateway.cluster.life`, which
also has the links and is faster than `gateway.cluster.timeout_s`.
"""

from typing import Final, Literal

from gateway.cluster.lease_table import Lease
from gateway.members.table import MemberTable

OwnerState = Literal["served", "starting", "owner_silent", "no_owner"]
"""`starting`: the owner has not said yet that its fences are in force. `owner_silent`: its heartbeats have stopped, or
the gateway has ended, or a later process of its name is there."""

OWNER_STATES: Final[tuple[OwnerState, ...]] = ("served", "starting", "owner_silent", "no_owner")


def owner_state(lease: Lease, members: MemberTable, now: float) -> OwnerState:
    """What the shard's owner counts as; `now`: monotonic seconds."""
    if lease.owner is None:
        return "no_owner"
    member = members.get(lease.owner.name)
    if member is None or member.record.boot > lease.owner.boot or members.status(member, now) in ("silent", "gone"):
        return "owner_silent"
    return "served" if lease.is_fenced else "starting"


def has_standby(lease: Lease, members: MemberTable, now: float) -> bool:
    """Whether any of the shard's standbys is up."""
    found = (members.get(name) for name in lease.standbys)
    return any(member is not None and members.status(member, now) == "up" for member in found)
