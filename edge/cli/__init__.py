"""The command `waystation`: its entry point, and the agent's commands.

Does: parse `waystation agent …`, and find the platform's commands if they are installed.
Does not: contain the platform's commands; those are in `jobs.cli`.
May import: `edge`, `mqtt` and `schemas`.
"""
