"""The records on `members`: what each gateway of a site says about itself (G2, G14).

A gateway writes one every `gateway.cluster.heartbeat_s`, and at once when its state changes. The key is its name. They
are events in JSON, versioned like those of :mod:`schemas.events`.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schemas.errors import RecordError
from schemas.events import Event, decode

BEARERS: Final = ("mqtt", "mqtts", "ws", "wss", "http", "https", "quic")
"""The protocols by which clients reach a gateway: MQTT over TCP and over WebSocket, HTTP, each of them with TLS, and
MQTT over QUIC (G11)."""

CONSOLE: Final = "console"
"""Among the addresses of a gateway of a cluster: where operators reach its console. It is no bearer."""

MemberState = Literal["joining", "up", "draining", "gone"]
"""`joining`: started, not serving yet; `up`: serves clients; `draining`: is being stopped; `gone`: has ended in
order. A gateway that was killed stays in the state of its last record."""

LARGEST_HEARTBEAT: Final = 8_192
"""The largest record, in bytes, that readers accept."""

LONGEST_NAME: Final = 255
"""The longest name of a gateway, in characters."""

MOST_WARM: Final = 512
"""Shards that a heartbeat names as warm: with all else it stays below LARGEST_HEARTBEAT."""

MOST_STARTING: Final = 256
"""Likewise, shards whose start has made progress."""

RECORDS: Final = 1
"""The version of records and frames between gateways that this release writes, and the highest that it reads. It is one
number for all of them: a release that changes any of them, so that its predecessor cannot read it, raises it, and goes
on writing the earlier version while a gateway lives that reads no other (:mod:`gateway.members.record_versions`)."""

OLDEST_RECORDS: Final = 1
"""The lowest such version that this release reads."""

_MOST = (1 << 63) - 1

Count = Annotated[int, Meta(ge=0, le=_MOST)]


class GatewayAddress(msgspec.Struct, frozen=True):
    """Where clients connect: a host name or an IP address (IPv6 without brackets), and a port."""

    address: Annotated[str, Meta(min_length=1, max_length=255)]
    port: Annotated[int, Meta(ge=1, le=65535)]


class GatewayLoad(msgspec.Struct, frozen=True, kw_only=True):
    """`connections`: open connections of clients, HTTP included. `cpu`: processor time of the gateway's process as a
    share of one core, averaged over the last seconds; a gateway that has reached 1 can do no more. `memory_bytes`: its
    resident memory; `memory`: the same as a share of what the machine or the container has, 0 to 1."""

    connections: Count = 0
    cpu: Annotated[float, Meta(ge=0, le=10_000)] = 0.0
    memory_bytes: Count = 0
    memory: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Heartbeat(Event, frozen=True, kw_only=True):
    """On `members`, key the gateway's name: one heartbeat.

    `boot` identifies the gateway's process, as in :class:`schemas.events.PresenceEvent`; a later process has a higher
    one. (`boot`, `seq`) orders the records of a name. `addresses` are those advertised to clients, by bearer, and
    perhaps CONSOLE; empty before the gateway serves. `relay` is where other gateways connect to relay clients to it;
    left out if they cannot. `zone` is the setting of that name. `at_us` is the gateway's own clock, for people: nothing
    is decided by it.

    `reads` is the lowest version of records and frames between gateways that this one reads, `reads_to` the highest
    (RECORDS). A heartbeat itself only ever gets more fields, which earlier readers ignore: so gateways of all releases
    know of each other.

    `warm` are shards whose state the gateway keeps as a standby, and could take over quickly (Q7, Q9); of more than
    MOST_WARM each heartbeat names others, in turn. `starting` are those that it owns and has still to serve, if it has
    read more of their state since the record before; left out if there are none. `links` is where other gateways make
    their links to it (Q6); None if it takes none. `shares`: it shares the shards with other gateways; otherwise it has
    all of them, and no other one may run.
    """

    boot: Count
    seq: Count
    state: MemberState
    at_us: Count
    reads: Count = OLDEST_RECORDS
    reads_to: Count = RECORDS
    zone: Annotated[str, Meta(max_length=64)] = ""
    addresses: Annotated[dict[Annotated[str, Meta(max_length=16)], GatewayAddress], Meta(max_length=16)] = (
        msgspec.field(default_factory=dict)
    )
    relay: GatewayAddress | UnsetType = UNSET
    load: GatewayLoad = GatewayLoad()
    warm: Annotated[list[Count], Meta(max_length=MOST_WARM)] = msgspec.field(default_factory=list)
    links: GatewayAddress | None = None
    starting: Annotated[list[Count], Meta(max_length=MOST_STARTING)] | UnsetType = UNSET
    shares: bool = True


def decode_heartbeat(key: bytes | None, value: bytes) -> tuple[str, Heartbeat]:
    """The gateway's name and its record. Raises RecordError for a name or a record that is not valid: anybody who may
    write to the topic may have written it."""
    try:
        name = (key or b"").decode()
    except UnicodeDecodeError as error:
        raise RecordError("the key is not UTF-8") from error
    if not 1 <= len(name) <= LONGEST_NAME:
        raise RecordError(f"the key is not a name: it has {len(name)} characters, allowed: 1 to {LONGEST_NAME}")
    if len(value) > LARGEST_HEARTBEAT:
        raise RecordError(f"a Heartbeat of {len(value)} bytes is larger than {LARGEST_HEARTBEAT}")
    return name, decode(Heartbeat, value)
