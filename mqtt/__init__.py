"""MQTT 5.0 and 3.1.1, sans-I/O: bytes and `now` come in, packets, events and bytes go out.

Does: decode and encode every packet of both versions; check topics; keep the state of one server-side connection.
Does not: read or write sockets, look at a clock, keep sessions, queues, subscriptions or packet ids, decide who may
do what: that is the session's part.
May import: `schemas.errors`, msgspec, the standard library without asyncio, socket, ssl, time.
"""
