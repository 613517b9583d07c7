"""Access: which clients may connect, and what they may do (R11).

Does: passwords, tokens, client certificates; topic rules; files that are reloaded when they change.
Does not: know sockets, sessions or the home; the caller reports a refusal.
May import: `schemas`, `gateway.errors`, `gateway.watched`, `mqtt`, `gateway.shard.rules`, `gateway.host.authenticator`,
asyncio.
"""
