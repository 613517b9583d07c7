"""What queries keep on disk or in the store: checkpoints, table files, SQLite databases beside the driver.

Does: append to history tables, rewrite current-state tables, remember keys and states.
Does not: decide what a row contains.
May import: pyspark, deltalake, :mod:`schemas`.
"""
