"""The agent as a member of a mesh: its node, its uplink and its identity, behind what the agent needs of them (M1-M21).

Does: hand what programs give to the node, and what the node gives to the agent; keep the log of ways, and mails until
their senders know of a failure, in the node's file; bring bundles to gateways; renew the certificate.
Does not: know SMTP, folders and MQTT (`edge.agent`), or decide what goes to whom (`edge.mesh`, `edge.uplink`).

Imported only if `mesh.enabled`: an agent without a mesh needs no cryptography.
"""
