"""Policy at the source (Q12): what the operator allows, asked once at the gateway that a client speaks to.

Does: limits of size and of rate, blocked destinations, connection rates; counts and reports what they refuse.
Does not: know users or their rights (the gate and the rules that it wraps do), or ask again further on: the result
travels as flags in the envelope.
May import: `schemas`, `mqtt`, `gateway.home`, `gateway.host.gate`; no sockets, no clock: `now` comes in.
"""
