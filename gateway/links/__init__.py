"""Links between gateways: the end of one shows within milliseconds that a process was killed (Q6).

Does: hold a TCP connection to each member that matters, ask whether it is still there, and connect again when it ends.
Does not: judge. It says what happened as events of :mod:`gateway.cluster.life`; records on `members` decide, and only a
refused connection is taken for death at once.
May import: `schemas`, `gateway.cluster.life`, `gateway.host.tls`; `frames` and `dialling` are pure.
"""
