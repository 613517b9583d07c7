"""The HTTP bearer (G11): publish with a POST, receive a stream of server-sent events; described by `/openapi.json`.

Does: speak HTTP/1.1 on a socket (aiohttp), turn requests into what publishers and sessions of the home understand.
Does not: keep anything that outlives the process; keys and sessions are the home's.
May import: `schemas`, `mqtt`, `gateway.home`, `gateway.host`, asyncio, aiohttp.
"""
