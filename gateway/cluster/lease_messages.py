"""What the keeper of leases is told, and what it asks for (:mod:`gateway.cluster.lease_keeper`). Values only.

Events come from the reader of `leases`, from the homes of this gateway, from operators, and from time. Effects are
performed by the gateway in their order; those of one step belong together.
"""

from typing import NamedTuple

from schemas.leases import LeaseKey, LeaseValue

# -- events ------------------------------------------------------------------------------------------------------------


class LeaseRead(NamedTuple):
    """A record on `leases` was read, one's own included; a `value` of None is a tombstone."""

    offset: int
    key: LeaseKey
    value: LeaseValue | None


class CaughtUp(NamedTuple):
    """What was on `leases` and `members` at the start has been read. Nothing is claimed before."""


class FenceRead(NamedTuple):
    """A fence of a shard was read, on whichever topic."""

    shard: int
    epoch: int


class Fenced(NamedTuple):
    """This gateway's home of a shard has read back all its fences of this epoch: it serves."""

    shard: int
    epoch: int


class Outranked(NamedTuple):
    """This gateway's home of a shard has read up to its own fence, and a fence of this epoch or a higher one stands
    before it: `leases` has been lost, or a claimant did not know of it. The shard needs a higher epoch."""

    shard: int
    epoch: int


class Superseded(NamedTuple):
    """This gateway's home of a shard has read the higher fence `fence` of somebody else: it promises nothing any more.
    `leases` was read up to an end that was asked for afterwards. Whoever writes a fence has read its claim before, so
    if the lease still names this epoch, nobody owns the shard in that of the fence: the claim was lost, with `leases`.
    """

    shard: int
    epoch: int
    fence: int


class Frozen(NamedTuple):
    """This gateway's home of a shard has stopped, and its last positions are read back."""

    shard: int
    epoch: int


class StandbyReady(NamedTuple):
    """A standby of one's own shard has caught up."""

    shard: int
    name: str


class StandbyNotReady(NamedTuple):
    """A member is not warm any more: it has fallen behind, follows the shard no longer, or is another process now."""

    shard: int
    name: str


class MoveTo(NamedTuple):
    """An operator, or a gateway that replaces another, wants a shard of one's own at the member `name`."""

    shard: int
    name: str


class Drain(NamedTuple):
    """The gateway gives up its shards, and claims none any more. `stays`: it goes on afterwards, so it keeps a shard
    until another member can take it; otherwise it is being stopped."""

    stays: bool = False


class WriteFailed(NamedTuple):
    """A claim or release of one's own may not have reached Kafka. It may have, too."""

    shard: int
    epoch: int


class Verified(NamedTuple):
    """`leases` has been read up to its end as it was after :class:`Verify`."""


class Due(NamedTuple):
    """A member is known to be dead, or a shard is released: what may be claimed now does not wait for the next tick."""


class Tick(NamedTuple):
    """Time has passed. To be given several times within the shortest delay."""


LeaseEvent = (
    LeaseRead
    | CaughtUp
    | FenceRead
    | Fenced
    | Outranked
    | Superseded
    | Frozen
    | StandbyReady
    | StandbyNotReady
    | MoveTo
    | Drain
    | WriteFailed
    | Verified
    | Due
    | Tick
)

# -- effects -----------------------------------------------------------------------------------------------------------


class WriteLease(NamedTuple):
    """Produce this record to `leases`, in the order of these effects; None is a tombstone. If a claim or release cannot
    be written, :class:`WriteFailed` follows."""

    key: LeaseKey
    value: LeaseValue | None


class Begin(NamedTuple):
    """This gateway owns the shard in this epoch. Its home writes its fences, reads up to them, mends, serves, and says
    :class:`Fenced`. If the shard was followed, its warm state is the home's."""

    shard: int
    epoch: int


class Freeze(NamedTuple):
    """The home stops serving, writes its last positions, and says :class:`Frozen`."""

    shard: int
    epoch: int


class End(NamedTuple):
    """The shard is not this gateway's any more in this epoch: its home sends and writes nothing more."""

    shard: int
    epoch: int


class Follow(NamedTuple):
    """This gateway is a standby of the shard: it reads along what is the shard's."""

    shard: int


class Unfollow(NamedTuple):
    shard: int


class Hold(NamedTuple):
    """The loop stood still: no home sends anything until :class:`Resume`."""


class Verify(NamedTuple):
    """Ask for the end of `leases`, read up to it, and say :class:`Verified`."""


class Resume(NamedTuple):
    """The leases are verified: homes that have not ended go on."""


class MoveGivenUp(NamedTuple):
    """The shard stays here: the member to which it was to move is lost, or has not become warm in time."""

    shard: int
    to: str
    is_lost: bool


class DrainWaits(NamedTuple):
    """After :class:`Drain`: no other member can take the shards that are left here. Said once, until one can."""


class Drained(NamedTuple):
    """After :class:`Drain`: no shard is left here."""


LeaseEffect = (
    WriteLease | Begin | Freeze | End | Follow | Unfollow | Hold | Verify | Resume | MoveGivenUp | DrainWaits | Drained
)
