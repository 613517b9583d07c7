"""The MQTT client for everything outside the data centre: applications, the command line and tests.

Does: connect over TCP, TLS, WebSocket and QUIC; publish, subscribe, acknowledge; reconnect after a loss. The
library for applications, with an outbox on disk, is :mod:`edge.client`.
Does not: implement the protocol (:mod:`mqtt` does), serve clients, decide where a message goes, use Kafka or Spark.
May import: `mqtt`, `schemas`, websockets, aioquic and cryptography; never `gateway`, `pipelines`, `jobs` or pyspark.
"""
