"""The mesh between agents, sans-I/O: bytes and `now` come in; events and bytes go out.

Does: encode, sign and check bundles and receipts; run the contact protocol; decide which bundles to give to whom;
remember what was delivered; merge message presence.
Does not: read or write sockets, files or databases, read a clock, find peers, encrypt payloads, or talk to gateways.
May import: `schemas`, cryptography, the standard library without asyncio, socket, ssl, time.
"""
