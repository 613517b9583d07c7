"""What runs away from the data centre: an MQTT client, and all that devices have on top of it.

Does: connect over TCP, TLS, WebSocket and QUIC; publish, subscribe, acknowledge; reconnect after a loss. On top of
that :mod:`edge.client` is the library for applications, with an outbox on disk; :mod:`edge.agent` stands beside
programs that know nothing of Waystation; :mod:`edge.mesh` has the cores of the mesh, :mod:`edge.sim` simulates them.
Does not: implement the protocol (:mod:`mqtt` does), decide where a message goes, use Kafka or Spark.
May import: `mqtt`, `schemas`, and what distributions/edge/pyproject.toml lists; never `gateway`, `pipelines`, `jobs`.
"""
