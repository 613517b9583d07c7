"""What travels between agents and gateways of the mesh: bundles, receipts, certificates; without I/O.

Agents write and carry them (`edge`); gateways take them and sign receipts (`gateway`). So both import this package, and
it imports neither. Design: docs/edge.md.
"""
