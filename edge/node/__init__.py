"""A node of the mesh: the cores of `edge.mesh` with a store on disk, links to peers, and their discovery (M2, M5-M8).

Does: keep bundles, receipts, certificates and what arrived in one SQLite file; answer a peer when that is on disk; open
and accept links (TLS 1.3, both ends authenticated); find peers; hand envelopes to the application.
Does not: decide what to give to whom (`edge.mesh`), talk to gateways (`edge.uplink`), or read the agent's file.
May import: `bundles`, `schemas`, `edge.mesh`, file and errors of `edge.client`, asyncio, ssl, sqlite3, zeroconf.

A reader begins with `node.py`; `journal.py` says when what is durable. Design: docs/edge.md.
"""
