"""Shared by all Spark applications: start and end of their processes, session, leases, storage.

Does: build Spark sessions, lock checkpoints, handle signals.
Does not: know any query.
May import: :mod:`pipelines`, :mod:`schemas`, :mod:`jobs.errors`.
"""
