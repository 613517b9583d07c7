"""The MQTT stand-in: a server for MQTT clients here, and a client of a stock broker at the far side (M16, M21).

    clients ──► listener, connection ──► store (packet id, queues, spool: one transaction) ──► forwarding ──► client
    clients ◄── outgoing ◄── store (queues) ◄── standin ◄── dispatch ◄── platform
    broker  ◄── far_broker ◄── forwarding ◄── store (spool)

Does: answer a PUBLISH once it is on disk, keep sessions, and pass messages on, each once.
Does not: keep connections to the platform or the broker; :mod:`edge.client` does.
May import: `edge`, `mqtt` and `schemas`.
"""
