"""The feed adapter: reads a source and publishes it on one half of a feed's partitions (S2, S4).

Does: sources (file, pipe, TCP, UDP), restart at the right place, heartbeats and slots on the topic `feeds`,
administrative messages at the same point of both streams.
Does not: parse formats (:mod:`edge.feeds.formats`), merge, or decide which stream is active.
May import: `schemas`, `feeds`, `edge.feeds`, `edge.client`'s Kafka files; kafka-python in `kafka_*` and `registry_*`.

    source ──► parser ──► Composer (numbers, administration) ──► Buffer ──► outputs (Kafka: `feed.<name>`)
                                   ▲                                           │ acknowledged
    topic `feeds` ──► Registry, Administration                                 └──► Checkpoint
"""
