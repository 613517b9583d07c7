"""The subscriber of redundant feeds: `from waystation import FeedSubscriber` (S3, S6); docs/feeds.md explains it.

Does: read both copies of a feed from Kafka, or the merged stream from a gateway; give an application one stream, and
keep what it has committed.
Does not: decide by itself what a copy is: that is :mod:`feeds.merge`. May import: `schemas`, `feeds`, `mqtt`, and of
`edge` the client library.
"""
