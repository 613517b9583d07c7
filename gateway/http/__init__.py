"""The HTTP bearer (G11): publish with a POST, ask and wait for replies (R6), receive a stream of server-sent events;
and the access point (G1). Described by `/openapi.json`.

Does: serve HTTP/1.1 on a socket (aiohttp), translate requests for the home's publishers and sessions.
Does not: keep anything that outlives the process; keys and sessions belong to the home.
May import: `schemas`, `mqtt`, `gateway.shard`, `gateway.host`, `gateway.members`, asyncio, aiohttp.
"""
