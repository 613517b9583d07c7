"""The audit (`python -m jobs.audit`, `waystation audit` and `explain`): repeats routing decisions and compares them.

Does: recompute the decision for one message, or for all messages of a period.
Does not: change any table.
"""
