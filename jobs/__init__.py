"""The programs that run: the Spark applications, the local stack, and the command line.

Does: compose pipelines into applications, start and watch processes, read the ledger for people.
Does not: decide where a message goes (:mod:`pipelines`) or speak MQTT as a server (:mod:`gateway`).
May import: everything but :mod:`gateway`, which is started as a process.
"""
