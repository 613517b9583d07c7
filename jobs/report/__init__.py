"""A page about one date of the ledger: traffic, latency, outcomes, rankings, connections, what stood out.

Does: choose the date, ask the ledger by SQL (`jobs/report/report.sql`), draw, write one HTML file that loads nothing.
Does not: start Spark, need a stack that runs, write to the ledger.
"""
