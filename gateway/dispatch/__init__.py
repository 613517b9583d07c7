"""The dispatcher: owns the MQTT port of a machine, and gives each client to the gateway that is its home (R1).

Does: accept connections over TCP, look at CONNECT without taking it, and hand the untouched socket to a process of this
machine, over `gateway.sockets`. It survives its gateways, and passes its listening sockets to its own successor.
Does not: read from or write to a client. A connection that was handed over is none of its business.
May import: `schemas`, `mqtt`, `gateway.sockets`, the followers and tables of `gateway.leases` and `gateway.members`,
`gateway.host.proxy_protocol`, asyncio; `connect`, `choice` and `frames` are pure.
"""
