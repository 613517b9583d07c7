"""Several gateways share the shards of a site: this one's part, performed (G4, G6, G14, Q6-Q9).

Does: follow the topics `leases` and `members`, let :mod:`gateway.cluster` decide, and do what it decides: write claims,
start, move and end homes of shards. Say who has a client's shard, and where that gateway is reached.
Does not: decide anything, know what a shard is made of (`gateway.shard`), or carry a client's bytes (`gateway.host`).
May import: `schemas`, `gateway.cluster`, `gateway.members`, `gateway.shard`, `gateway.bus`, asyncio; `gateway.host` to
open its listener for members and to have clients relayed.
"""
