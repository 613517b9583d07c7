"""The operator's console: pages below `/console` on the metrics port that show what this gateway knows.

Does: build each page from values (view models), render it on a thread, and keep a short history of rates for its plots.
Does not: run on the path of a message; read Kafka or the ledger; show anything that other gateways know.
May import: all of the gateway, jinja2; only `gateway.app` imports this package. View models (`overview`, `shards`,
`clients`, `retained`, `refusals`, `applications`, `parts`, `text`, `history`) have no loop and no clock.
"""
