"""The ledger application (`python -m jobs.ledger`): all micro-batch queries in one Spark session.

Does: start and supervise the queries that fill the Delta tables.
Does not: say what a row holds (:mod:`pipelines.ledger`).
"""
