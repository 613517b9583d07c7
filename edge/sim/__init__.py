"""The mesh as a simulation of itself: many agents made of the cores of :mod:`edge.mesh`, over a contact trace, in
virtual time; beside them direct delivery, plain binary spray, and an oracle that knows the trace.

Does: read traces; draw uplinks and messages from a seed; run cores and baselines; write figures and a plot.
Does not: use sockets, real time or several processes.
May import: `edge.mesh`, `schemas`, cryptography, and matplotlib for the plot only.
"""
