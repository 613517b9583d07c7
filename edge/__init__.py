"""What runs away from the data centre: the MQTT client that applications, the command line and tests use.

Does: connect over TCP, TLS and WebSocket; publish, subscribe, acknowledge; connect again after a loss.
Does not: speak MQTT by itself (:mod:`mqtt` does), serve clients, decide where a message goes, use Kafka or Spark.
May import: `mqtt`, `schemas`, and websockets; never `gateway`, `pipelines`, `jobs` or pyspark.
"""
