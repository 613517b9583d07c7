"""The router application (`python -m jobs.router`): routing in Real-Time Mode (R2, R3).

Does: run one or two routing queries, keep their phases apart, follow the routes table.
Does not: decide where a message goes (:mod:`pipelines.routing`).
"""
