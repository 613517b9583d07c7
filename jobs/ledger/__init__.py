"""The ledger application (`python -m jobs.ledger`): all micro-batch queries in one Spark session.

Does: start and supervise the queries that fill the Delta tables.
Does not: decide what a row contains (:mod:`pipelines.ledger`).
"""
