"""Quality: what must hold of the ledger, and the rows that violate it.

Does: state each expectation once and find its violations by SQL.
Does not: judge or report (:mod:`jobs.quality`).
May import: pyspark, :mod:`schemas`.
"""
