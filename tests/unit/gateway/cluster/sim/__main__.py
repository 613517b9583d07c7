"""Repeats runs of the simulation: `python -m tests.unit.gateway.cluster.sim SEED…`.

With `--safeguards [COUNT]`: for each safeguard the first seed among COUNT that fails without it and passes with it.
"""

import sys

from tests.unit.gateway.cluster.sim import runs
from tests.unit.gateway.cluster.sim.safeguard import find_seed
from tests.unit.gateway.cluster.sim.safeguards import SAFEGUARDS
from tests.unit.gateway.cluster.sim.share_safeguards import SHARE_SAFEGUARDS


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--safeguards"]:
        count = int(arguments[1]) if arguments[1:] else 1_000
        for safeguards, first in ((SAFEGUARDS, 0), (SHARE_SAFEGUARDS, runs.GROUPS_FROM)):
            for safeguard in safeguards:
                found = find_seed(safeguard, range(first, first + count))
                sys.stdout.write(f"{found}: {safeguard.rule}\n")
                sys.stdout.flush()
    for seed in arguments if arguments[:1] != ["--safeguards"] else []:
        runs.run(int(seed))
        sys.stdout.write(f"seed {seed}: passed\n")


if __name__ == "__main__":
    main(sys.argv[1:])
