"""The contracts between Waystation's processes: the contents of every Kafka topic and every Delta table.

Does: declare topics, tables, envelope, events, identifiers, settings and the root of all errors.
Does not: connect, read, write, or keep state (except :mod:`schemas.settings`, which reads configuration files).
May import: the standard library, msgspec, structlog and argon2: devices install them too, so neither pyspark nor
pyarrow (their schemas: :mod:`pipelines.spark_schemas`, :mod:`pipelines.arrow_schemas`).
"""
