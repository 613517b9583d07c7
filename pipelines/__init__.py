"""What Spark does with messages and events, as transforms of DataFrames.

Does: route messages and fold route events (:mod:`.routing`), make the ledger's rows and find completions
(:mod:`.ledger`), fold presence (:mod:`.presence`), find violations of expectations (:mod:`.quality`), separate good
records from bad (:mod:`.records`). Only :mod:`.sources` reads, and only :mod:`.sinks` writes. :mod:`.kafka` and
:mod:`.storage` hold what queries share: positions, checkpoints, table files.
Does not: build a session, read settings, a clock or the environment, or decide when queries run.
May import: pyspark, delta, :mod:`schemas`.
"""
