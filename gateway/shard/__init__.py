"""The home of shards: sessions, queues, windows and subscriptions, from what `egress` and `sessions` say.

Does: match instructions with subscriptions, keep each session's queue and windows, spool what stays unacknowledged,
relinquish, recover all of it after a crash.
Does not: speak MQTT on a socket (hosts do), decide which shard gets a message (the router does).
May import: `schemas`, `gateway.errors`, `mqtt`; I/O comes in as a bus and a spool.
"""
