"""Feed adapters: how a source's data become messages of a redundant feed (S2).

Does: parse source formats, unwrap sequence numbers that start over, decide which two adapters can be a redundant pair,
number the lines of a source in front of receivers (`waystation feed sequence`), publish (:mod:`edge.feeds.adapter`).
Does not: merge streams, or decide which one is active.
May import: `schemas`, `feeds`, msgspec, the standard library. Only `sequence_state`, `sequence_command` and `adapter`
use files, and only `adapter` the network.
"""
