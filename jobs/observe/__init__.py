"""A Spark application seen from outside: metrics, health, and lines in the log about its streaming queries.

Does: take what the listener hears anyway (:mod:`jobs.observe.progress`), and show it over HTTP and in the log.
Does not: ask Spark for anything on the way of a batch; what Spark does not tell with a batch's progress is not here.
May import: `jobs.observe.progress` and `schemas`; of `jobs` only the applications import it.
"""
