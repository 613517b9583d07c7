"""The command line `waystation`: one file per group of commands, each with `register(app)`.

Does: read arguments and the environment, show results to people, turn errors into one sentence.
Does not: know how parts are started (:mod:`jobs.stack`) or how tables are read (:mod:`jobs.query.ledger_reader`).
May import: :mod:`jobs`, :mod:`edge`, :mod:`mqtt`, :mod:`schemas`, typer, rich.
"""
