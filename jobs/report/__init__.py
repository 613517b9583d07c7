"""A page about one date of the ledger: traffic, latency, outcomes, rankings, connections, what stood out.

Does: choose the date, query the ledger (`jobs/report/report.sql`), draw, write one HTML file that loads nothing.
Does not: start Spark, need a running stack, write to the ledger.
"""
