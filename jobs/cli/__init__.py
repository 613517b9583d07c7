"""The command line `waystation`: one file per group of commands, each with `register(app)`.

Does: read arguments and the environment, show results to people, turn errors into one sentence.
Does not: know how parts are started (:mod:`jobs.stack`) or how tables are read (:mod:`jobs.query.ledger_reader`).
May import: :mod:`jobs`, :mod:`edge`, :mod:`mqtt`, :mod:`schemas`, typer, rich.
"""

from importlib.util import find_spec

if find_spec("edge") is None or find_spec("schemas") is None:
    raise SystemExit(
        "waystation needs the distribution waystation-edge of the same version, which is not installed: "
        "install it with `pip install waystation-edge`, or run `make env`"
    )
