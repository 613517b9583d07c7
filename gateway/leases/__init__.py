"""What a gateway does about leases: acts by :mod:`gateway.cluster`, over the topics `leases` and `members` (G14).

Does: tell the rest of the gateway who has a client's shard.
Does not: decide who owns a shard (`gateway.cluster` does), or serve clients.
May import: `schemas`, `gateway.cluster`, `gateway.host.homes`, `gateway.members`, asyncio.
"""
