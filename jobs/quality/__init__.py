"""The quality job: does the ledger hold what it promises? (`python -m jobs.quality`, `waystation quality`)

Does: choose the dates to judge, let Spark find what is unexpected (:mod:`pipelines.quality.findings`), let Great
Expectations judge that, append to `quality_results`, write pages.
Does not: change any other table.
"""
