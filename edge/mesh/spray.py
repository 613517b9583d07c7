"""To whom a carrier gives how many copies of which bundles, and in which order: binary spray, guided by encounters.

Plain binary spray (Spyropoulos, Psounis, Raghavendra: Spray and Wait, 2005): whoever has n > 1 copies gives half of
them to each peer that has none; who has one waits for the recipient. Three things are different here:

* **Receipts.** Every carrier keeps the bundle until there is a receipt (M8, M12), even one that has given away its last
  copy, or handed it to a peer that could deliver: a peer can lie, or break. It may still hand it to the recipient or to
  an uplink. Receipts spread at contacts, and stop the spraying.
* **The last split is choosy.** Of the 7 transmissions that make 8 copies of one, 4 split two copies. These go only to a
  peer that is clearly more likely to meet an uplink (:mod:`edge.mesh.encounters`), so many are never made, as receipts
  come first. Earlier splits go to anybody, which keeps copies in different places.
* **The last copy moves** to a peer that is much more likely (the focus phase of Spray and Focus, 2007). This brings
  transmissions, and messages that would not arrive otherwise.

With unlimited copies none of this applies: everything goes to everybody, and only receipts stop it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bundles.bundle import Header


@dataclass(frozen=True, slots=True)
class SprayPolicy:
    """By how much a peer must be likelier to meet an uplink. The defaults come from the simulation (`make mesh`)."""

    free_split: int = 4  # with this many copies or more, half of them go to any peer
    split_factor: float = 4.0  # with fewer: only if the peer's predictability is this many times ours, or more
    focus_factor: float = 2.0  # the only copy: if it is more than this many times ours, plus the margin
    focus_margin: float = 0.3


class PeerView(NamedTuple):
    """What a peer says of itself."""

    name: str
    has_uplink: bool
    predictability: float


class Candidate(NamedTuple):
    """A bundle that might be offered. `copies` are those that may still be given; None: unlimited."""

    message_id: str
    header: Header
    copies: int | None
    remaining_s: int


FOR_RECIPIENT: Final = -1
"""The budget of a bundle that came from the platform: only the recipient gets it, and only its own receipt ends it. The
platform has it already, so bringing it there, or a gateway's receipt, is of no use."""


def can_deliver(header: Header, peer: PeerView) -> bool:
    """Whether the peer is the recipient's agent (M15), or can reach the platform."""
    return peer.has_uplink or peer.name == header.recipient


def copies_to_give(
    header: Header, copies: int | None, peer: PeerView, predictability: float, policy: SprayPolicy
) -> int | None:
    """How many of our `copies` the peer gets: 0 is none, None unlimited. One that can deliver needs just one copy, and
    gets it even if none is left. `predictability` is ours."""
    if copies is None:
        return None
    if copies < 0:  # FOR_RECIPIENT, perhaps less what is offered
        return 1 if peer.name == header.recipient else 0
    if can_deliver(header, peer):
        return 1
    if copies >= 2:
        is_worth_it = copies >= policy.free_split or peer.predictability >= policy.split_factor * predictability
        return copies // 2 if is_worth_it else 0
    is_much_better = peer.predictability > policy.focus_factor * predictability + policy.focus_margin
    return copies if copies == 1 and is_much_better else 0


def in_order(candidates: Iterable[Candidate], peer: PeerView) -> list[Candidate]:
    """What is offered first: what the peer can deliver, then what has the least time left."""
    return sorted(
        candidates,
        key=lambda one: (
            not can_deliver(one.header, peer),
            one.remaining_s,
            one.header.created_ms,
            one.header.sequence,
        ),
    )
