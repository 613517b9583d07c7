"""Redundant feeds from the command line: their administration at gateways, and their logs on Kafka (S1, S3).

Does: ask gateways over HTTP, read both streams from Kafka and merge them, replay a log.
Does not: decide who is active (gateways do), or keep a position: each run begins anew.
May import: `feeds`, `schemas`, confluent-kafka.
"""
