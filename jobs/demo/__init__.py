"""A day of real flights, replayed through a real stack by real MQTT clients that count what they receive; or by agents
of a mesh (`mesh_*`), at airports and on aircraft, with messages that aircraft carry.

Does: read the flights of a day, plan clients and their actions, replay the plan in scaled time, compare what every
client received with what its subscriptions say it should have received, report. For the mesh: make identities and
settings, run the agents, cut uplinks and links between them, count what arrives.
Does not: look into the gateway, or into agents' files; it queries the ledger, and asks the agents, only from outside.
May import: :mod:`edge`, :mod:`mqtt`, :mod:`bundles`, :mod:`jobs.stack`, :mod:`jobs.query`, :mod:`schemas`, rich, the
matcher of paho-mqtt.
"""
