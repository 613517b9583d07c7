"""The platform's part in the mesh of agents: it takes bundles, opens payloads and signs receipts; it gives what
waits for devices that are away to agents that carry it, and takes these devices' receipts (M7, M12, M14, M15, M17,
M21).

Does: the platform's identity, which certificates all gateways know, what becomes of a bundle.
Does not: know HTTP; who remembers what was delivered is the shard (:mod:`gateway.shard.taken_bundles`).
May import: `schemas`, `mqtt`, `bundles`, `gateway.bus`, `gateway.errors`, `gateway.watched`, `gateway.host`,
`gateway.policy.bucket`, `gateway.shard`, `gateway.slices`, asyncio.
"""
