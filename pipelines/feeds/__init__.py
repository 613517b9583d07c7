"""The ledger of redundant feeds (S5).

Does: turn records of all topics `feed.…` into rows of `feed_copies` and `feed_progress`, without copies of copies;
remember how far the tables have each of these topics.
Does not: compare the two slots. The views `feed_messages`, `feed_gaps`, `feed_differences` and `feed_health`
(:mod:`jobs.query`) do, over these rows.
May import: pyspark, :mod:`schemas`, :mod:`feeds`, :mod:`pipelines.kafka`, :mod:`pipelines.storage`.
"""
