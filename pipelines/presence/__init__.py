"""Presence of clients, gateways and messages, as folds of events (R12, G2, M9).

Does: merge events into states and write the states to compacted topics.
Does not: hold a timer a client.
May import: pyspark, :mod:`schemas`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
