"""The gateway: speaks MQTT to clients over TCP and WebSocket, and Kafka to the rest of the platform.

Does: client connections, sessions, homes of shards, the SQLite spool, metrics, the admin API.
Does not: decide where a message goes (the Spark router does), read or write Delta.
May import: `schemas`, `mqtt`; never pyspark, `pipelines`, `jobs` or `edge`. The protocol and session cores import no
sockets, asyncio, ssl or time: bytes and `now` come in, bytes and events go out.
"""
