"""The ledger: rows of the history tables, and completion (R4, R7).

Does: turn records into rows, count relinquished instructions, limit how many batches run at a time.
Does not: read or write topics and tables, except in the completion sink.
May import: pyspark, :mod:`schemas`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
