"""Submits Spark applications to a cluster: the applications, their bundle, the command, and drivers on this machine.

Does: compose `spark-submit` for standalone masters, YARN and Kubernetes; supervise drivers on this machine.
Does not: run Spark itself; an application is a module of its own.
May import: schemas, jobs.
"""
