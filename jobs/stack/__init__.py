"""The local stack: a real broker, the Spark applications and a gateway on one machine.

Does: resolve JVM libraries, find a JDK, start the parts in order, restart parts that die, remember what runs.
Does not: carry messages or decide about them.
May import: the standard library, psutil, confluent-kafka, :mod:`schemas`, :mod:`pipelines.streams`,
:mod:`edge.durable`, :mod:`jobs.errors`.
"""
