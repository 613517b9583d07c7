"""A day of real flights, replayed through a real stack by real MQTT clients that count what they receive.

Does: read the flights of a day, plan clients and their actions, replay the plan in scaled time, compare what every
client received with what its subscriptions say it should have received, report.
Does not: look into the gateway; it queries the ledger only afterwards.
May import: :mod:`edge`, :mod:`mqtt`, :mod:`jobs.stack`, :mod:`jobs.query.ledger_reader`, :mod:`schemas`, rich, the
matcher of paho-mqtt.
"""
