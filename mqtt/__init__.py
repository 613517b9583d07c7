"""MQTT 5.0 and 3.1.1, sans-I/O: bytes and `now` come in; packets, events and bytes go out.

Does: decode and encode every packet of both versions; check topics; keep the state of one client or server connection,
and a client's session.
Does not: read or write sockets, read a clock, keep a server's sessions, queues, subscriptions or packet ids, or
authorize clients: the gateway does.
May import: `schemas.errors`, msgspec, the standard library without asyncio, socket, ssl, time; `quic_stream`
and `quic_connection` also aioquic, which nobody else here imports.
"""
