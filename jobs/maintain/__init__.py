"""Maintenance: keeps the tables, and files related to them, bounded while the platform runs.

Does: find what is due, from the tables' logs and from listings, and do it step by step, with deltalake and no JVM.
Does not: change the content of a row, or touch what a running query needs.
May import: pipelines, schemas, and what jobs have in common.
"""
