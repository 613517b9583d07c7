"""Enrolment: the authority's files and commands, the identity of a device, and how it gets and renews it (M5, M17).

May import: `edge.client.access_point`, `bundles`, `schemas`; `command` also `edge.agent.settings`.
"""
