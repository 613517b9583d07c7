"""The audit (`python -m jobs.audit`, `waystation audit` and `explain`): routing decisions made again and compared.

Does: recompute the decision for one message, or for all of a period.
Does not: change any table.
"""
