"""Feed adapters: how a source's data become messages of a redundant feed (S2).

Does: parse source formats, unwrap sequence numbers that start over, decide which two adapters can be a redundant pair,
number the lines of a source in front of receivers (`waystation feed sequence`).
Does not: publish, merge or synchronise streams.
May import: `schemas`, msgspec, the standard library; only `sequence_state` and `sequence_command` use files.
"""
