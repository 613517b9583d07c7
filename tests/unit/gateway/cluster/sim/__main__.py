"""Repeats runs of the simulation: `python -m tests.unit.gateway.cluster.sim SEED…`.

With `--safeguards [COUNT]`: for each safeguard the first seed below COUNT that fails without it and passes with it.
"""

import sys

from tests.unit.gateway.cluster.sim import site
from tests.unit.gateway.cluster.sim.safeguards import SAFEGUARDS, find_seed


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--safeguards"]:
        for safeguard in SAFEGUARDS:
            found = find_seed(safeguard, range(int(arguments[1]) if arguments[1:] else 1_000))
            sys.stdout.write(f"{found}: {safeguard.rule}\n")
            sys.stdout.flush()
    for seed in arguments if arguments[:1] != ["--safeguards"] else []:
        site.run(int(seed))
        sys.stdout.write(f"seed {seed}: passed\n")


if __name__ == "__main__":
    main(sys.argv[1:])
