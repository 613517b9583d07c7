"""The contracts between Waystation's processes: what stands on every Kafka topic and in every Delta table.

Does: declare topics, tables, envelope, events, identifiers, settings and the root of all errors.
Does not: connect, read, write, or keep state (but for :mod:`schemas.settings`, which reads configuration files).
May import: the standard library, msgspec and structlog; only :mod:`schemas.spark` imports pyspark.
"""
