"""Routing: which shards get a message, and which routes say so (R2, R3, R7, R8).

Does: fold route events, join messages with routes, keep two routers half a batch apart, make decisions again.
Does not: read or write topics and tables.
May import: pyspark, :mod:`schemas`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
