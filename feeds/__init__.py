"""Redundant feeds: what two adapters write about one source, and how a reader makes one stream of both; without I/O.

Does: the feed message and its record on Kafka (S2), the merger (S3, S6), synchronised administrative messages (S4).
Does not: read sources or Kafka, know who is active or who subscribes, or look at a clock: the caller passes time in.
May import: `schemas`. Adapters and the client library (`edge`) import it, and so do homes (`gateway`). Design and
state: docs/feeds.md.
"""
