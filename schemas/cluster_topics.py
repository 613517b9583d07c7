"""`$cluster/…`: what gateways that share the shards of a site tell each other through `ingress` (G6, Q8).

`$cluster/fences` has the fence messages: a gateway that takes over shards writes one to each partition of `ingress` and
to `retained`, before it serves (:mod:`gateway.cluster.fencing`). They have the envelope of any message and go through
the routers. Every shard has a route for them. Homes take them and deliver them to nobody. No client may publish or
subscribe below `$cluster`, whether or not gateways share the shards.
"""

from typing import Annotated, Final

import msgspec

from schemas.errors import RecordError
from schemas.origin import CLUSTER_ROOT
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1
FENCES_TOPIC: Final = f"{CLUSTER_ROOT}/fences"
_HIGHEST = 2**63 - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=_HIGHEST)]


class Fences(msgspec.Struct, frozen=True):
    """The payload of a fence message, as JSON: `epochs` are (shard, epoch) of each shard that the gateway has taken
    over; `gateway` and `boot` say who has written it (:class:`schemas.leases.Claimant`)."""

    v: int
    gateway: str
    boot: Number
    epochs: list[tuple[Number, Number]]


def is_cluster(topic: str) -> bool:
    """Whether a topic name or filter speaks of `$cluster`; no filter that begins otherwise matches it
    [MQTT-4.7.2-1]."""
    return topic.startswith(CLUSTER_ROOT) and topic[len(CLUSTER_ROOT) :][:1] in ("", "/")


def encode_fences(fences: Fences) -> bytes:
    """The payload of a fence message."""
    return msgspec.json.encode(fences)


def decode_fences(raw: bytes) -> Fences:
    """The fences in a payload. Raises RecordError if it is malformed or of another version."""
    try:
        fences = _decoder.decode(raw)
    except UNDECODABLE as error:
        raise RecordError(f"the fence message is malformed: {error}") from error
    if fences.v != VERSION:
        raise RecordError(f"version {fences.v} of a fence message is not {VERSION}")
    return fences


_decoder = msgspec.json.Decoder(Fences)
