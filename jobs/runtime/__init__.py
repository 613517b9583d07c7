"""What all Spark applications share: how a process starts and ends, its session, its leases, its storage.

Does: build Spark sessions, lock checkpoints, handle signals.
Does not: know any query.
May import: :mod:`pipelines`, :mod:`schemas`, :mod:`jobs.errors`.
"""
