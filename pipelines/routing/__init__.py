"""Routing: which shards get a message, and which routes decide that (R2, R3, R7, R8).

Does: fold route events, join messages with routes, keep two routers half a batch apart, recompute past decisions.
Does not: read or write topics and tables.
May import: pyspark, :mod:`schemas`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
