"""The settings of a node: the table `[mesh]` of the agent's file; docs/edge.md explains every key (M19).

Agents without a mesh read it too, so it imports no cryptography: that takes 10 MB.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from schemas.sections import NotEmpty, NotNegative, Port, Positive, Seconds, Section

if TYPE_CHECKING:
    from edge.mesh.limits import MeshLimits

HOPS_MAX: Final = 255
UNLIMITED: Final = 0xFFFF
"""As in :mod:`bundles.bundle` and :mod:`edge.mesh.contact_frames`; a test compares them."""

FRAGMENT: Final = """\
[mesh]               # agents near each other carry messages for one another; docs/edge.md
enabled = false
host = "127.0.0.1"   # where links of peers are accepted; "0.0.0.0" or "::" for all networks of this machine
port = 4660          # 0: any free port
peers = []           # agents to connect to: ["host:port", "[::1]:port"]
discovery = false    # find peers in the local network (DNS-SD over multicast DNS), and be found
copies = 8           # of a new message that may be in the mesh. 0: unlimited
hops = 16            # over at most so many links, 255 at most
carry = true         # take bundles that are for others, and bring them on. false: only those to this agent
lifetime_s = 604_800       # longest lifetime of a bundle that is accepted, ours or a peer's
stored_bundles = 10_000    # kept here, ours and those carried for others. Beyond: refused
stored_bytes = 67_108_864  # of all of them. Beyond: refused. An eighth of both is kept for ours. A peer may
                           # send a sixteenth at a time, or one bundle
bundle_bytes = 1_048_576   # of one, encoded. Beyond: refused
receipts = 100_000         # remembered; the oldest are forgotten first. If a recipient has more than an eighth, its
                           # oldest go before those of others
unknown_receipts = 10_000  # of one recipient, in an hour, for messages that are not here. Beyond: ignored
inbox_messages = 10_000    # that have arrived and wait for the application. Beyond: refused, so carriers keep them
inbox_bytes = 67_108_864   # of those
reports = 100_000          # for message presence, that wait for a gateway
certificates = 10_000      # names whose certificates are kept
connections = 32           # links at the same time. Beyond: closed at once. As many more may be in their handshake.
                           # Beyond: the oldest of these is closed
handshake_s = 10.0         # for a network connection and TLS
idle_s = 30.0              # without an answer that a peer owes, or with bytes that it does not take; a peer that
                           # has gone without a word is noticed within as long (TCP keep-alive). A bundle that takes
                           # longer to come may come from another peer as well
latency_ms = 0.0           # a peer whose round trip takes longer is not reachable: it is offered nothing. 0: no limit
probe_s = 30.0             # between two measurements of a peer's round trip
good_to_come_up = 2        # round trips in time, in sequence, after which a peer is reachable again
bad_to_go_down = 3         # late ones in sequence, after which it no longer is
redial_most_s = 60.0       # the longest pause between attempts to reach an address; pauses are random
"""
"""For agent.toml: every key with its default and its meaning. A test compares it with the class."""


class MeshSettings(Section, frozen=True):
    enabled: bool = False
    host: NotEmpty = "127.0.0.1"
    port: Port = 4660
    peers: list[NotEmpty] = msgspec.field(default_factory=list)
    discovery: bool = False
    copies: Annotated[int, Meta(ge=0, lt=UNLIMITED)] = 8
    hops: Annotated[int, Meta(ge=1, le=HOPS_MAX)] = 16
    carry: bool = True
    lifetime_s: Annotated[int, Meta(ge=1, le=30 * 86_400)] = 604_800
    stored_bundles: Positive = 10_000
    stored_bytes: Positive = 67_108_864
    bundle_bytes: Annotated[int, Meta(ge=4_096, le=16_777_216)] = 1_048_576
    receipts: Positive = 100_000
    unknown_receipts: Positive = 10_000
    inbox_messages: Positive = 10_000
    inbox_bytes: Positive = 67_108_864
    reports: Positive = 100_000
    certificates: Positive = 10_000
    connections: Positive = 32
    handshake_s: Seconds = 10.0
    idle_s: Seconds = 30.0
    latency_ms: NotNegative = 0.0
    probe_s: Seconds = 30.0
    good_to_come_up: Positive = 2
    bad_to_go_down: Positive = 3
    redial_most_s: Seconds = 60.0


def limits(settings: MeshSettings) -> "MeshLimits":
    """The limits of the cores."""
    from edge.mesh.limits import MeshLimits

    return MeshLimits(
        copies=settings.copies,
        hops=settings.hops,
        carry=settings.carry,
        bundle_bytes=settings.bundle_bytes,
        stored_bytes=settings.stored_bytes,
        stored_bundles=settings.stored_bundles,
        lifetime_s=settings.lifetime_s,
        receipts=settings.receipts,
        unknown_receipts=settings.unknown_receipts,
        idle_s=settings.idle_s,
        latency_s=settings.latency_ms / 1000,
        probe_s=settings.probe_s,
        good_to_come_up=settings.good_to_come_up,
        bad_to_go_down=settings.bad_to_go_down,
        summary_ids=max(MeshLimits().summary_ids, settings.stored_bundles),
    )


def broken_rules(settings: MeshSettings) -> Iterator[str]:
    """What is wrong with the settings beyond their types, one sentence each."""
    for peer in settings.peers:
        try:
            parse_peer(peer)
        except ValueError as error:
            yield f"mesh.peers: {error}"
    if settings.latency_ms >= settings.idle_s * 1000:
        yield "mesh.latency_ms must be below mesh.idle_s: a link that is silent for as long is closed"


def parse_peer(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[address]:port`. Raises ValueError."""
    host, mark, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not mark or not bare or (":" in host and bare == host) or not (port.isdecimal() and 0 < int(port) < 65_536):
        raise ValueError(f'{text!r} is not "host:port" or "[address]:port"')
    return bare, int(port)
