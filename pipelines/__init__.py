"""What Spark does with messages and events, as transforms of DataFrames.

Does: route messages and fold route events (:mod:`.routing`), make the ledger's rows and find completions
(:mod:`.ledger`), fold presence (:mod:`.presence`), find what breaks an expectation (:mod:`.quality`), tell good records
from bad (:mod:`.records`). :mod:`.sources` alone reads, :mod:`.sinks` alone writes. :mod:`.kafka` and :mod:`.storage`
hold what queries share: positions, checkpoints, files of tables.
Does not: build a session, read settings, a clock or the environment, decide when queries run.
May import: pyspark, delta, :mod:`schemas`.
"""
