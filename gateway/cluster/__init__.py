"""Several gateways serve one site: who owns which shard, and what makes a change of owner safe (G4-G6, Q2, Q6-Q9).

Does: decide. The fold of the topic `leases`, where shards belong, who is alive, when this gateway claims, moves and
releases shards, and the rules of fences that keep an owner that has lost its shard from doing harm.
Does not: read or write anything. What it decides it returns as values; the gateway performs them.
May import: `schemas`. No sockets, no loop, no bus, no disk, no clock: records and the time come in.
"""
