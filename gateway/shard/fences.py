"""Fences of shards on `sessions` and `spool`: writing them, and nothing else (G6, Q7).

What fences are for, and why they stand in this order, :mod:`gateway.cluster.fencing` says. **Those on `sessions` are
stored before those on `spool` are written.** A home that has committed to its spool asks with a barrier on `sessions`
whether the commit counts (:mod:`gateway.shard.promises`). If the commit stands behind a fence on `spool`, the fence on
`sessions` was stored before it, so the barrier stands behind that one, and the home learns that it has lost the shard.
In the other order the commit could be void and the barrier say that it counts.

:mod:`gateway.shard.fenced_partition` reads by them.
"""

import asyncio
from collections.abc import Mapping
from typing import Literal

from gateway.bus import Bus
from gateway.stored import stored
from schemas.fences import encode_fence, epoch_headers, fence_key
from schemas.leases import Claimant
from schemas.topics import Topics

Verdict = Literal["counts", "void", "fence", "removal", "malformed"]


async def write_fences(bus: Bus, topics: Topics, owned: Mapping[int, int], claimant: Claimant) -> None:
    """Begins the epochs of `owned` (epoch by shard). Returns once all fences are stored. Raises BusError."""
    value = encode_fence(claimant)
    records = {shard: (fence_key(epoch), value, epoch_headers(epoch)) for shard, epoch in owned.items()}
    for topic in (topics.sessions, topics.spool):  # in this order: see above
        refused = f"cannot write to the topic {topic}"
        fences = (stored(bus, topic, shard, record, refused) for shard, record in records.items())
        await asyncio.gather(*fences)
