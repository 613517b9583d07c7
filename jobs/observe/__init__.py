"""Monitoring of a Spark application: metrics, health, and log lines about its streaming queries.

Does: use what the listener is told anyway (:mod:`jobs.observe.progress`), and show it over HTTP and in the log.
Does not: call Spark during a batch; what a batch's progress does not contain is not available here.
May import: `jobs.observe.progress` and `schemas`; of `jobs` only the applications import it.
"""
