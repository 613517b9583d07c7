"""Submitting Spark applications to a cluster: which there are, what goes with them, the command, the drivers here.

Does: compose `spark-submit` for standalone masters, YARN and Kubernetes; keep drivers that run on this machine.
Does not: run Spark itself; an application is a module of its own.
May import: schemas, jobs.
"""
