"""The agent: one process beside unmodified programs, for which it stands in at this side and at the far side (M16).

Does: take mail over SMTP, files from folders and messages over MQTT, hand them to the platform or to a mesh (`mesh`),
relay what comes to a mail server, into folders and to MQTT clients and brokers, and keep a log of every message's way.
docs/agent.md explains it.
Does not: keep connections to gateways and peers; :mod:`edge.client`, :mod:`edge.uplink` and :mod:`edge.node` do.
May import: `edge`, `mqtt`, `bundles` and `schemas`.
"""
