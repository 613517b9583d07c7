"""Sources, one a file: each reads bytes or datagrams, parses them, and hands what it found to the intake (S2).

A source has `run()`, which returns when the source has ended, and is cancelled to stop it.
"""
