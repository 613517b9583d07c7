"""The quality job: does the ledger hold what it promises? (`python -m jobs.quality`, `waystation quality`)

Does: choose the dates to judge, have Spark find what is not as expected (:mod:`pipelines.quality.findings`), have Great
Expectations judge that, append to `quality_results`, write pages.
Does not: change any table but its own.
"""
