"""A day of real flights, flown through a real stack by real MQTT clients that count for themselves what they got.

Does: read the flights of a day, make a plan of clients and what each does when, play it in scaled time, compare what
every client got with what its subscriptions say it should have got, report.
Does not: look into the gateway; the ledger is asked only after the fact.
May import: :mod:`edge`, :mod:`mqtt`, :mod:`jobs.stack`, :mod:`jobs.query.ledger_reader`, :mod:`schemas`, rich,
the matcher of paho-mqtt.
"""
