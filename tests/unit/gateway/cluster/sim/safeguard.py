"""A rule that makes a change of owner safe, and how to switch it off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.unit.gateway.cluster.sim import runs
from tests.unit.gateway.cluster.sim.world import Violation


class Safeguard(NamedTuple):
    """`of.name` is replaced by `without`."""

    rule: str
    of: Any
    name: str
    without: Any
    seed: int

    @contextmanager
    def off(self) -> Iterator[None]:
        with patch.object(self.of, self.name, self.without):
            yield


def fails(safeguard: Safeguard, seed: int) -> bool:
    """Whether a run without the safeguard breaks something."""
    with safeguard.off():
        try:
            runs.run(seed)
        except Violation:
            return True
        return False


def find_seed(safeguard: Safeguard, seeds: range) -> int | None:
    """The first of the seeds that fails without the safeguard."""
    return next((seed for seed in seeds if fails(safeguard, seed)), None)
