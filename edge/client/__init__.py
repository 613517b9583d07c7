"""The client library: applications publish and subscribe, and keep working while nothing is reachable (M2, G13).

Does: keep an outbox on disk, find a gateway, connect and reconnect, requests and replies. Applications import it as
:mod:`waystation`.
Does not: implement MQTT or network links (:mod:`mqtt` and the modules above this one do).
May import: `edge`, `mqtt`, `schemas`, msgspec; never `gateway`, `pipelines`, `jobs`, aiohttp or pyspark.
"""
