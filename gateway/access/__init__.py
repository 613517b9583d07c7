"""Access: who may come in, and what they may do (R11).

Does: passwords, tokens, client certificates; rules by topic; files that are read again when they change.
Does not: know of sockets, sessions or the home; what is refused is told by whoever asked.
May import: `schemas`, `gateway.errors`, `gateway.watched`, `mqtt`, `gateway.home.rules`, `gateway.host.gate`,
asyncio.
"""
