"""Kafka as queries see it: positions, topics on the broker, and records written from the driver.

Does: report how far a query has read and where it starts, and write small numbers of records.
Does not: open streams (:mod:`pipelines.sources`).
May import: pyspark, :mod:`schemas`, :mod:`pipelines.storage`.
"""
