"""Presence of clients, gateways and messages, folded from events (R12, G2, M9).

Does: merge events into states and write the states to compacted topics.
Does not: keep a timer per client.
May import: pyspark, :mod:`schemas`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
