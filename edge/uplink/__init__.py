"""The uplink: how an agent brings what it holds to the platform, over one or several bearers (M3, M4, M10, M11, M13).

Does: measure which bearers reach a gateway; choose which bundle goes over which; ask message presence, claim, deliver,
report; fetch the gateways' certificates and the revocation list.
Does not: store bundles, receipts or reports (its :class:`.holder.Holder` does), link up with peers, or open payloads.
May import: `edge.client` (access points), `edge.mesh`, `edge.reconnect`, `bundles`, `schemas`, `mqtt.topics`, msgspec.
"""
