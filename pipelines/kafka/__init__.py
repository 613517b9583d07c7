"""Kafka as queries see it: positions, topics at the broker, and records written from the driver.

Does: say how far a query has read, where it starts, and write handfuls of records.
Does not: open streams (:mod:`pipelines.sources`).
May import: pyspark, :mod:`schemas`, :mod:`pipelines.storage`.
"""
