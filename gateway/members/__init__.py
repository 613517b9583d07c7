"""The gateways of a site: what each says about itself on the topic `members`, and whom a client is sent to (G1, G2).

Does: write this gateway's heartbeats, follow everybody's, and order the operational gateways for a client.
Does not: serve clients (the access point's request is in `gateway.http`), or decide who owns a shard.
May import: `schemas`, `gateway.bus`, `gateway.record`, asyncio; the table, the order and the addresses are pure.
"""
