"""Reads the ledger without Spark (DuckDB over Delta), and defines the views that analysts use.

Does: open tables, define views, run SQL.
Does not: print (:mod:`jobs.cli`).
"""
