"""The limits of an agent in the mesh: every one is enforced, and announced to peers where they need it (M7, M19)."""

from dataclasses import dataclass
from typing import Final

from bundles.bundle import HOPS_MAX
from edge.mesh.contact_frames import FRAME_BYTES_MIN, UNLIMITED

OWN_SHARE: Final = 8
"""An eighth of the store is for the agent's own messages."""
ARRIVING_SHARE: Final = 16
"""A sixteenth of it is for what one peer is sending."""


@dataclass(frozen=True, slots=True)
class MeshLimits:
    """What an agent takes, keeps and sends. Of the store, bundles of others may take :attr:`carried_bytes` and
    :attr:`carried_bundles`, and those that one peer is sending :attr:`arriving_bytes` and :attr:`arriving_bundles`: a
    peer that never sends what it has offered keeps neither the agent nor other peers from using the store."""

    copies: int = 8  # of a new message that may be in the mesh (the proxy count); 0: unlimited
    hops: int = 16  # over at most so many links from the originator; at most 255
    carry: bool = True  # bundles for others are taken; else only those to this agent
    bundle_bytes: int = 1_048_576  # of one bundle, encoded
    stored_bytes: int = 67_108_864  # of all bundles together, with those that peers have begun to send
    stored_bundles: int = 10_000
    lifetime_s: int = 604_800  # longest lifetime of a bundle that is accepted
    receipts: int = 100_000  # remembered; the oldest are forgotten first
    unknown_receipts: int = 10_000  # of a recipient, in an hour, for messages that are not held here
    frame_bytes: int = 65_536  # of one frame of the contact protocol; larger bundles are sent in several
    frames: int = 20_000  # received in ten seconds of a contact; more are a flood
    summary_ids: int = 100_000  # that a peer may say it holds
    again_s: float = 60.0  # after a decline whose reason may pass; then twice as long, until the peer stores one
    again_most_s: float = 3_600.0
    unanswered_offers: int = 64  # that a peer may have open at once, each way
    burst_bytes: int = 262_144  # of bundles in one call of `outgoing`, so that receipts and answers need not wait long
    idle_s: float = 30.0  # a contact that waits for its peer, and hears nothing, is closed; a bundle that takes longer
    # to come may come from another peer as well
    latency_s: float = 0.0  # a peer whose round trip takes longer is not reachable: nothing is offered; 0: no threshold
    probe_s: float = 30.0  # between two measurements of the round trip
    good_to_come_up: int = 2  # round trips below the threshold in sequence, for a peer that was not reachable
    bad_to_go_down: int = 3  # round trips above it in sequence
    peers: int = 1_000  # about which it is remembered which receipts and certificates they have; the oldest go first
    certificates: int = 200  # passed on at one contact, besides those of gateways, and of who signed what is sent
    certificates_taken: int = 2_000  # unknown ones that are looked at in one contact; further ones are ignored

    def __post_init__(self) -> None:
        if not 1 <= self.hops <= HOPS_MAX:
            raise ValueError(f"the hop limit must be 1 to {HOPS_MAX}, not {self.hops}")
        if not 0 <= self.copies < UNLIMITED:
            raise ValueError(f"copies must be 1 to {UNLIMITED - 1}, or 0 for unlimited, not {self.copies}")
        if self.frame_bytes < FRAME_BYTES_MIN:
            raise ValueError(f"the frame limit must be at least {FRAME_BYTES_MIN} bytes, not {self.frame_bytes}")

    @property
    def carried_bytes(self) -> int:
        """How full the store may be with a bundle of another agent; one of the largest fits in any case."""
        return max(self.stored_bytes - self.stored_bytes // OWN_SHARE, min(self.bundle_bytes, self.stored_bytes))

    @property
    def carried_bundles(self) -> int:
        """The same in bundles."""
        return self.stored_bundles - self.stored_bundles // OWN_SHARE

    @property
    def arriving_bytes(self) -> int:
        """Of the bundles that one peer is sending, unless it is only one."""
        return self.stored_bytes // ARRIVING_SHARE

    @property
    def arriving_bundles(self) -> int:
        """Their number, at least 1."""
        return max(1, self.stored_bundles // ARRIVING_SHARE)
