"""What Spark does with messages and events, as transforms of DataFrames.

Does: route messages (:mod:`.routing`), fold route events (:mod:`.routes`), find completions (:mod:`.completion`), make
the ledger's rows (:mod:`.ledger`), tell good records from bad (:mod:`.records`). :mod:`.sources` alone reads,
:mod:`.sinks` alone writes. Where a query begins that has lost its checkpoint is for :mod:`.beginnings` to say.
Does not: build a session, read settings, a clock or the environment, decide when queries run.
May import: pyspark, delta, :mod:`schemas`.
"""
