"""Policy at the source (Q12): the operator's limits, checked once at the gateway that the client connects to.

Does: limits of size and rate, blocked destinations, connection rates; counts and reports refusals.
Does not: know users or their rights (the authenticator and the rules it wraps do), or check again downstream: the
result travels as flags in the envelope.
May import: `schemas`, `mqtt`, `gateway.shard`, `gateway.host.authenticator`; no sockets, no clock: `now` comes in.
"""
