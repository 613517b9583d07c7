"""Maintenance: keeps the tables and what lies beside them bounded, while the platform runs.

Does: choose what is due, from the tables' logs and from listings, and do it step by step, with deltalake and no JVM.
Does not: change what a row says, or touch what a running query needs.
May import: pipelines, schemas, and what jobs have in common.
"""
