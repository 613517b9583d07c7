"""The operator's console: pages below `/console` on the metrics port that show what this gateway knows.

Does: build each page from values (view models), render it on a thread, and keep a short history of rates for its plots.
Does not: run on the path of a message; read Kafka or the ledger; ask other gateways anything.
May import: all of the gateway, jinja2; only `gateway.app` imports this package. View models (a module a page), their
parts, and the history have no loop and no clock.

A page is a module with its path and a function that makes its parts from facts, a method of `facts` that gathers these,
and a line each in `console` (its path) and `render` (the navigation).
"""
