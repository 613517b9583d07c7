"""The local stack: a real broker, the Spark applications and a gateway on one machine.

Does: resolve JVM libraries, find a JDK, start the parts in order, restart what dies, remember what runs.
Does not: carry or decide about messages.
May import: the standard library, psutil, confluent-kafka, :mod:`schemas`, :mod:`jobs.errors`.
"""
