"""The stream administration service of redundant feeds (S1): follows the topic `feeds`, brokers, switches, reports.

Does: fold the topic, tell of changes, write assignments, subscriptions and administrative requests, remove old records.
Does not: read feeds' messages or merge them. Keeps nothing: all state is on the topic, so all gateways are equal.
May import: `schemas`, `feeds`, `gateway.bus`, `gateway.shard` (for `$feeds/…`), asyncio.
"""
