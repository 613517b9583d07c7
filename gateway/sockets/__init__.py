"""Sockets pass between the processes of one machine (R1, R5).

Does: carry frames with sockets from one process to another, over sockets in a directory that they share.
Does not: know what the frames say.
May import: `gateway.errors`, asyncio.
"""
