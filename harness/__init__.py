"""What tests and measurements share: real processes of Waystation and Kafka, keys and certificates.

Does: start programs and brokers as processes of their own, wait until they are ready, kill and stop them; make a site
of gateways with a stand-in for the routers, and follow who owns its shards.
Does not: assert anything about what the platform does, or measure it. May import: schemas, feeds, jobs,
gateway.cluster. Neither the product nor `bench` imports from tests.
"""
