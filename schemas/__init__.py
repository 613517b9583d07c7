"""The contracts between Waystation's processes: the contents of every Kafka topic and every Delta table.

Does: declare topics, tables, envelope, events, identifiers, settings and the root of all errors.
Does not: connect, read, write, or keep state (except :mod:`schemas.settings`, which reads configuration files).
May import: the standard library, msgspec and structlog; only :mod:`schemas.spark` imports pyspark.
"""
