"""Hosts: the gateway's end of client connections, over TCP and WebSocket (G11).

Does: move bytes between transports and the MQTT core, and packets between the core and the home.
Does not: keep anything that outlives a connection.
May import: `schemas`, `mqtt`, `gateway.shard`, `gateway.watched`, asyncio, ssl.
"""
