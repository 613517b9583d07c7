"""What tests and measurements share: real processes of Waystation and Kafka, keys and certificates.

Does: start programs and brokers as processes of their own, wait until they are ready, kill and stop them; make two
faulty receivers of one source.
Does not: assert or measure anything. May import: schemas, feeds, jobs. Neither the product nor `bench` imports from
tests.
"""
